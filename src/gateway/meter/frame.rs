/// The bytes of an event around its text. The next event of a stream most often differs from it in nothing else, and
/// need not be parsed to say so.
pub struct Frame {
    before: Vec<u8>,
    after: Vec<u8>,
}

impl Frame {
    /// The frame of an event that was read and had just this text; `None` where it can't be told for sure.
    pub fn around(text: &str, event: &[u8]) -> Option<Self> {
        // Escaped, a text has other bytes than its own.
        if text.is_empty() || !text.bytes().all(stands_for_itself) || event.contains(&b'\\') {
            return None;
        }
        let quoted = text.len().checked_add(2)?;
        let is_text = |window: &[u8]| {
            let inner = window.strip_prefix(b"\"");
            inner.and_then(|w| w.strip_suffix(b"\"")) == Some(text.as_bytes())
        };
        let mut places = event.windows(quoted).enumerate();
        let (at, _) = places.find(|(_, window)| is_text(window))?;
        if places.any(|(_, window)| is_text(window)) {
            return None;
        }
        let (before, rest) = event.split_at_checked(at.checked_add(1)?)?;
        Some(Self {
            before: before.to_vec(),
            after: rest.get(text.len()..)?.to_vec(),
        })
    }

    /// The text of an event that is the same but for it.
    pub fn text_of<'a>(&self, event: &'a [u8]) -> Option<&'a str> {
        let rest = event.strip_prefix(self.before.as_slice())?;
        let text = rest.strip_suffix(self.after.as_slice())?;
        if !text.iter().copied().all(stands_for_itself) {
            return None;
        }
        std::str::from_utf8(text).ok()
    }
}

/// Whether a byte within the quotes of a JSON string is what it says.
const fn stands_for_itself(byte: u8) -> bool {
    !matches!(byte, 0..=0x1f | b'"' | b'\\')
}

#[cfg(test)]
mod tests {
    use super::*;

    const EVENT: &str =
        "data: {\"id\":\"a\",\"choices\":[{\"delta\":{\"content\":\" word\"}}]}\n\n";

    fn frame(text: &str, event: &str) -> Option<Frame> {
        Frame::around(text, event.as_bytes())
    }

    #[test]
    fn an_event_that_differs_in_its_text_alone_is_known() {
        let frame = frame(" word", EVENT).unwrap();
        for text in [" word", "x", " Straße 日本", "'{}[]:,"] {
            let next = EVENT.replace(" word", text);
            assert_eq!(frame.text_of(next.as_bytes()), Some(text));
        }
    }

    #[test]
    fn any_other_event_is_not() {
        let frame = frame(" word", EVENT).unwrap();
        for next in [
            EVENT.replace(" word", "\\n"),
            EVENT.replace(" word", "a\",\"content\":\"b"),
            EVENT.replace(" word", "a\nb"),
            EVENT.replace("\"a\"", "\"b\""),
            EVENT.replace("}}]", "},\"finish_reason\":\"stop\"}]"),
            EVENT.replace("\n\n", "\r\n\r\n"),
            EVENT.replace(" word\"}", ""),
            String::new(),
        ] {
            assert_eq!(frame.text_of(next.as_bytes()), None, "{next}");
        }
        let no_text = [EVENT.as_bytes().split_at(50).0, b"\xff\"}}]}\n\n"].concat();
        assert_eq!(frame.text_of(&no_text), None);
    }

    #[test]
    fn a_frame_is_only_taken_where_it_is_certain() {
        assert!(frame("", EVENT).is_none());
        assert!(frame("other", EVENT).is_none());
        assert!(frame("a", "data: {\"id\":\"a\",\"text\":\"a\"}\n\n").is_none());
        assert!(frame("b", "data: {\"id\":\"b\",\"text\":\"\\u0062\"}\n\n").is_none());
        assert!(frame("a\nb", "data: \"a\nb\"\n\n").is_none());
    }
}
