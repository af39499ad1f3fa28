use std::collections::BTreeMap;

use super::*;

/// The page rows of one account.
#[derive(Default)]
pub struct Pages(BTreeMap<String, Vec<u8>>);

impl Pages {
    pub fn apply(&mut self, changes: Changes) {
        for page in changes.pages_written {
            self.0.insert(page.key.to_string(), page.bytes);
        }
        for key in changes.pages_dropped {
            self.0.remove(&key.to_string());
        }
    }

    pub fn all(&self) -> Vec<StoredPage> {
        let pages = self.0.iter().map(|(key, bytes)| StoredPage {
            key: key.parse().unwrap(),
            bytes: bytes.clone(),
        });
        pages.collect()
    }

    pub fn size(&self) -> usize {
        self.0
            .iter()
            .map(|(key, bytes)| key.len() + bytes.len())
            .sum()
    }

    fn len(&self) -> usize {
        self.0.len()
    }
}

fn hourly(max_requests: u64) -> Limits {
    Limits {
        window: window_of(max_requests, Span::hours(1)),
        endpoints: vec![endpoint_of("a/b", max_requests, Span::hours(1))],
        ..unlimited()
    }
}

/// `count` calls a millisecond apart, so that each is an entry of its own.
fn fill(account: &mut Account, now: Millis, limits: &Limits, count: u64) {
    for index in 0..count {
        let call = Call {
            endpoint: Some("a/b".into()),
            ..arrival(index)
        };
        passes(account, now.plus(Span(index)), limits, &call);
    }
}

#[test]
fn a_call_writes_a_page_every_64th_time() {
    let limits = hourly(1_000);
    let mut account = Account::new();
    fill(&mut account, NOON, &limits, 63);
    assert_eq!(account.take_changes(), Changes::default());
    fill(&mut account, NOON.plus(Span(63)), &limits, 1);
    let keys: Vec<_> = account
        .take_changes()
        .pages_written
        .iter()
        .map(|p| p.key.to_string())
        .collect();
    assert_eq!(keys, ["window/0", "endpoint:a/b/0"]);
    assert_eq!(account.take_changes(), Changes::default());
}

#[test]
fn pages_go_when_their_last_call_has_left() {
    let limits = hourly(1_000);
    let mut account = Account::new();
    let mut pages = Pages::default();
    fill(&mut account, NOON, &limits, 200);
    account = stored_and_read(&mut account, &mut pages);
    assert_eq!(pages.len(), 6);
    let after_one_page = NOON.plus(Span::hours(1)).plus(Span(63));
    account.admit(after_one_page, &limits, &arrival("x"));
    account = stored_and_read(&mut account, &mut pages);
    assert_eq!(pages.len(), 4);
    account.admit(NOON.plus(Span::hours(3)), &limits, &arrival("y"));
    stored_and_read(&mut account, &mut pages);
    assert_eq!(pages.len(), 0);
}

#[test]
fn pages_of_an_endpoint_that_lost_its_limit_go_too() {
    let limits = hourly(1_000);
    let mut account = Account::new();
    let mut pages = Pages::default();
    fill(&mut account, NOON, &limits, 130);
    account = stored_and_read(&mut account, &mut pages);
    let later = NOON.plus(Span::hours(2));
    account.admit(later, &unlimited(), &arrival("x"));
    stored_and_read(&mut account, &mut pages);
    assert_eq!(pages.len(), 0);
}

#[test]
fn an_account_without_all_its_pages_is_not_believed() {
    let limits = hourly(1_000);
    let mut account = Account::new();
    fill(&mut account, NOON, &limits, 64);
    let key = PageKey {
        policy: PolicyName::Window,
        number: 0,
    };
    assert_eq!(
        Account::decode(&account.encode(), Vec::new()),
        Err(DecodeError::Page(key))
    );
}

#[test]
fn pages_nobody_knows_are_dropped() {
    let stray = StoredPage {
        key: "endpoint:gone/3".parse().unwrap(),
        bytes: vec![0],
    };
    let mut account = Account::decode(&Account::new().encode(), vec![stray.clone()]).unwrap();
    assert_eq!(account.take_changes().pages_dropped, [stray.key]);
}

#[test]
fn bytes_that_are_no_account_are_an_error() {
    assert_eq!(Account::decode(&[], Vec::new()), Err(DecodeError::Version));
    assert_eq!(Account::decode(&[9], Vec::new()), Err(DecodeError::Version));
    assert_eq!(
        Account::decode(&[1, 0], Vec::new()),
        Err(DecodeError::Damaged)
    );
}

#[test]
fn page_keys_are_names() {
    for text in ["window/0", "endpoint:a/b/17"] {
        assert_eq!(text.parse::<PageKey>().unwrap().to_string(), text);
    }
    assert!("window".parse::<PageKey>().is_err());
    assert!("window/x".parse::<PageKey>().is_err());
}
