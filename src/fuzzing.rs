//! What others send, held against properties that must hold for any bytes. `fuzz/` searches for bytes that
//! break one; `cargo test` tries the corpus and a few thousand changes of it, always the same ones.
//!
//! The properties stand beside what they are about; a broken one panics.

use crate::{auth, gateway, http};

/// One property of everything that some bytes may be.
pub type Target = fn(&[u8]);

/// All targets, by the names of `fuzz/fuzz_targets` and `fuzz/corpus`.
pub const TARGETS: [(&str, Target); 11] = [
    ("sse", gateway::fuzzing::sse),
    ("answer", gateway::fuzzing::answer),
    ("body", gateway::fuzzing::body),
    ("query", gateway::fuzzing::query),
    ("json", gateway::fuzzing::json),
    ("key", auth::fuzzing::key),
    ("jwt", auth::jwt::fuzzing::token),
    ("jwt_claims", auth::jwt::fuzzing::claims),
    ("path", http::fuzzing::path),
    ("headers", auth::fuzzing::headers),
    ("limit_headers", http::fuzzing::limit_headers),
];

/// Tries one input on the target of this name.
pub fn run(name: &str, bytes: &[u8]) {
    let found = TARGETS.iter().find(|(target, _)| *target == name);
    assert!(found.is_some(), "there is no target {name}");
    if let Some((_, target)) = found {
        target(bytes);
    }
}

/// A choice out of `bytes`' first one, and the rest.
pub fn choose<'a, T: Copy>(bytes: &'a [u8], among: &[T]) -> Option<(T, &'a [u8])> {
    let (first, rest) = bytes.split_first()?;
    let at = usize::from(*first).checked_rem(among.len())?;
    Some((*among.get(at)?, rest))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::PathBuf;

    use proptest::prelude::*;
    use proptest::sample::Index;
    use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};

    use super::*;

    /// Changes tried of each corpus.
    const CASES: u32 = 4_000;
    /// Pieces that mean something to one parser or another.
    const WORDS: [&str; 28] = [
        "\n\n",
        "\r\n\r\n",
        "\r",
        "data: ",
        "event: ",
        "[DONE]",
        "null",
        "true",
        "0",
        "-1",
        "1e400",
        "18446744073709551616",
        "9007199254740993",
        "\"\\ud800\"",
        "\\u0000",
        "\"model\":\"m\"",
        "\"max_tokens\":1",
        "\"usage\":{\"total_tokens\":9}",
        "{",
        "}",
        "[",
        ".",
        "..",
        "%2e",
        "%25",
        "\\",
        ";",
        "\u{feff}",
    ];

    /// One change of some bytes.
    #[derive(Clone, Debug)]
    enum Edit {
        Set(Index, u8),
        Flip(Index, u8),
        Remove(Index, Index),
        Repeat(Index, Index),
        Word(Index, Index),
        Splice(Index, Index, Index),
    }

    fn edit() -> impl Strategy<Value = Edit> {
        let at = any::<Index>;
        prop_oneof![
            (at(), any::<u8>()).prop_map(|(at, byte)| Edit::Set(at, byte)),
            (at(), 0..8u8).prop_map(|(at, bit)| Edit::Flip(at, bit)),
            (at(), at()).prop_map(|(from, to)| Edit::Remove(from, to)),
            (at(), at()).prop_map(|(from, to)| Edit::Repeat(from, to)),
            (at(), at()).prop_map(|(at, word)| Edit::Word(at, word)),
            (at(), at(), at()).prop_map(|(at, seed, from)| Edit::Splice(at, seed, from)),
        ]
    }

    fn apply(edit: &Edit, bytes: &mut Vec<u8>, seeds: &[Vec<u8>]) {
        let end = bytes.len() + 1;
        let range = |a: &Index, b: &Index| {
            let (a, b) = (a.index(end), b.index(end));
            a.min(b)..a.max(b)
        };
        match edit {
            Edit::Set(at, byte) if !bytes.is_empty() => *at.get_mut(bytes) = *byte,
            Edit::Flip(at, bit) if !bytes.is_empty() => *at.get_mut(bytes) ^= 1 << bit,
            Edit::Set(..) | Edit::Flip(..) => {}
            Edit::Remove(from, to) => drop(bytes.drain(range(from, to))),
            Edit::Repeat(from, to) => {
                let range = range(from, to);
                let piece = bytes[range.clone()].to_vec();
                bytes.splice(range.end..range.end, piece);
            }
            Edit::Word(at, word) => {
                let at = at.index(end);
                bytes.splice(at..at, word.get(&WORDS).bytes());
            }
            Edit::Splice(at, seed, from) => {
                let seed = seed.get(seeds);
                bytes.truncate(at.index(end));
                bytes.extend_from_slice(&seed[from.index(seed.len() + 1)..]);
            }
        }
    }

    fn corpus(name: &str) -> Vec<Vec<u8>> {
        let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR"))
            .join("fuzz/corpus")
            .join(name);
        let mut files: Vec<_> = fs::read_dir(folder)
            .unwrap()
            .map(|f| f.unwrap().path())
            .collect();
        files.sort();
        assert!(files.len() >= 2, "{name} has a corpus");
        files.iter().map(|file| fs::read(file).unwrap()).collect()
    }

    fn holds_for_changes_of_its_corpus(name: &str) {
        let seeds = corpus(name);
        seeds.iter().for_each(|seed| run(name, seed));
        let config = Config {
            cases: CASES,
            failure_persistence: None,
            ..Config::default()
        };
        let rng = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
        let inputs =
            (any::<Index>(), prop::collection::vec(edit(), 1..6)).prop_map(|(seed, edits)| {
                let mut bytes = seed.get(&seeds).clone();
                edits
                    .iter()
                    .for_each(|edit| apply(edit, &mut bytes, &seeds));
                bytes
            });
        TestRunner::new_with_rng(config, rng)
            .run(&inputs, |bytes| {
                run(name, &bytes);
                Ok(())
            })
            .unwrap();
    }

    macro_rules! targets {
        ($($name:ident),*) => {
            $(#[test]
            fn $name() {
                holds_for_changes_of_its_corpus(stringify!($name));
            })*

            #[test]
            fn every_target_is_tried_and_has_its_fuzzer() {
                let tried = [$(stringify!($name)),*];
                assert_eq!(TARGETS.map(|(name, _)| name), tried);
                let read = |file: &str| fs::read_to_string(format!("{}/fuzz/{file}", env!("CARGO_MANIFEST_DIR"))).unwrap();
                let manifest = read("Cargo.toml");
                for name in tried {
                    let file = format!("fuzz_targets/{name}.rs");
                    assert!(manifest.contains(&format!("name = \"{name}\"\npath = \"{file}\"")), "{name}");
                    assert!(read(&file).contains(&format!("run(\"{name}\"")), "{name}");
                }
            }
        };
    }

    targets!(
        sse,
        answer,
        body,
        query,
        json,
        key,
        jwt,
        jwt_claims,
        path,
        headers,
        limit_headers
    );
}
