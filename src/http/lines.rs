//! Headers as `js/wire.js` hands them over: name and value in turn, each with a line end.

/// Headers in lines. A value of several lines is none, and is left out.
pub fn write<N: AsRef<str>>(headers: &[(N, String)]) -> String {
    let mut text = String::with_capacity(1_024);
    for (name, value) in headers {
        if !value.contains(['\n', '\r']) {
            text.extend([name.as_ref(), "\n", value, "\n"]);
        }
    }
    text
}

/// The value of a header, by its name in lower case.
pub fn find<'a, N: AsRef<str>>(headers: &'a [(N, String)], name: &str) -> Option<&'a str> {
    let mut headers = headers.iter();
    headers
        .find(|(known, _)| known.as_ref() == name)
        .map(|(_, value)| value.as_str())
}

/// Headers out of their lines.
pub fn read(text: &str) -> Vec<(String, String)> {
    let mut lines = text.lines().map(str::to_owned);
    let mut headers = Vec::new();
    while let (Some(name), Some(value)) = (lines.next(), lines.next()) {
        headers.push((name, value));
    }
    headers
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owned<const N: usize>(headers: [(&str, &str); N]) -> Vec<(String, String)> {
        headers
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .to_vec()
    }

    #[test]
    fn what_is_written_is_read() {
        let headers = owned([("accept", "*/*"), ("empty", ""), ("last", "1")]);
        assert_eq!(read(&write(&headers)), headers);
    }

    #[test]
    fn nobody_adds_a_header_through_a_value() {
        let headers = owned([("a", "1\nb\n2"), ("c", "3\r"), ("d", "4")]);
        assert_eq!(write(&headers), "d\n4\n");
    }
}
