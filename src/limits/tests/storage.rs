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

/// An account with something of everything.
fn full_account() -> Account {
    let limits = Limits {
        daily: Some(3),
        monthly_tokens: Some(1_000),
        rate: bucket_of(100, 1),
        tokens_per_minute: Some(1_000),
        notify_at_permille: vec![800, 1_000],
        ..hourly(1_000)
    };
    let mut account = Account::new();
    let to = |name| Call {
        endpoint: Some("a/b".into()),
        ..ask(name, 10, 20)
    };
    fill(&mut account, NOON, &limits, 65);
    let now = NOON.plus(Span(100));
    let expires = now.plus(DAY);
    account
        .grant(now, &limits, PolicyName::Daily, 1, Some(expires))
        .unwrap();
    let degrade = DegradedLane {
        model: "m-cheap".into(),
        daily_limit: None,
        allowed_models: None,
    };
    for name in ["settled", "released", "open", "refused", "more"] {
        passes(&mut account, now, &limits, &to(name));
        match name {
            "settled" => drop(account.settle(now, &id(name), used(10, 15))),
            "released" => drop(account.settle(now, &id(name), Outcome::Released)),
            "open" => drop(account.checkpoint(now, &id(name), 10, 5, LEASE)),
            _ => {}
        }
    }
    let lapsing = Call {
        degrade: Some(degrade),
        lease: Span(1),
        ..to("lapsed")
    };
    passes(&mut account, now, &limits, &lapsing);
    assert!(account.reclaim(now.plus(Span(1))));
    refused(&mut account, now.plus(Span(1)), &limits, &to("last"));
    account
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Accounts that were stored by this version are read by every later one: these bytes never change, a
/// new layout gets a new version.
#[test]
fn the_stored_bytes_are_pinned() {
    let mut account = full_account();
    let changes = account.take_changes();
    let bytes = account.encode();
    let (body, later) = bytes[1..].split_at(449);
    assert_eq!(
        hex(body),
        concat!(
            "0180e8cfc4ec3380a0e9edec33040103010101e4fcb582ed330000e8070180e8cfc4ec3380a0e9",
            "edec330100000000000180d8eb83e83380e8e6d7f1332301e80700000000bb808402e5c49cd9ec33",
            "01f8d9c903e5c49cd9ec33e807032348f99874421257000114011ea4eea3d9ec33c0a90796c20201",
            "80e8cfc4ec33010180d8eb83e8331e011e0a010a0583c874d33e8bff73000114011ea4eea3d9ec33",
            "c0a90796c2020180e8cfc4ec33010180d8eb83e8331e011e0a00187897ce0afcf20b000114011ea4",
            "eea3d9ec33c0a90796c2020180e8cfc4ec33010180d8eb83e8331e011e0a0003d31e014808ecdd2a",
            "e4c49cd9ec33000114011e00d29eae1372c39624e4c49cd9ec33000114011e0196b14e09c5b2c896",
            "e5c49cd9ec33010114011e0296b14e09c5b2c896010114011ee5c49cd9ec330196c2020180e8cfc4",
            "ec33010180d8eb83e8331e011e0a0080dddb01010002c0c49cd9ec33012406010103612f6280dddb",
            "01010002c0c49cd9ec33012406010196c20296c2020501010000140f0101056461696c79010b0b00",
            "02a006e80702056461696c79a006040480e8cfc4ec3380a0e9edec33056461696c79e807040480e8",
            "cfc4ec3380a0e9edec33",
        )
    );
    assert_eq!(
        hex(later),
        format!("0000000196c202{}0103612f6206", "00".repeat(30))
    );
    let before = [&[1], body].concat();
    assert!(Account::decode(&before, changes.pages_written.clone()).is_ok());
    let page = &changes.pages_written[0];
    assert_eq!(page.key.to_string(), "window/0");
    assert_eq!(
        hex(&page.bytes),
        concat!(
            "4080c49cd9ec33010101010101010101010101010101010101010101010101010101010101010101",
            "01010101010101010101010101010101010101010101010101010101010101010101010101010101",
            "01010101010101010101010101010101010101010101010101010101010101010101010101010101",
            "0101010101010101010101010101",
        )
    );
    let read = Account::decode(&account.encode(), changes.pages_written).unwrap();
    assert_eq!(read, account);
}

#[test]
fn what_came_later_is_behind_the_rest_and_pinned_too() {
    let mut account = Account::new();
    account.admit(NOON, &unlimited(), &dispatch(1));
    let plain = account.encode();
    let took = Took {
        account: Some(Span(7)),
        upstream: Some(Span(300)),
    };
    account.note_took(NOON, &unlimited(), took);
    account.note_took(NOON, &unlimited(), Took::default());
    let counts = BTreeMap::from([("daily".to_owned(), 2)]);
    account.note_refused(NOON, &unlimited(), &id("batch"), &counts);
    let bytes = account.encode();
    assert_eq!((plain[0], bytes[0]), (1, 2));
    assert_eq!(
        hex(&bytes[bytes.len() - 47..]),
        concat!(
            "014bb24efc9641afc50000",
            "0196c202",
            "000100000000000000000000000007",
            "0000000000000100000000000000ac02",
            "00"
        )
    );
    assert_eq!(Account::decode(&bytes, Vec::new()), Ok(account));
}

#[test]
fn the_row_is_the_account_packed_whole() {
    let (limits, mut account, now) = (hourly(1_000), Account::new(), Millis(1_000_000));
    let whole = |account: &Account| {
        let bytes = account.encode();
        assert!(bytes[1..].starts_with(&postcard::to_allocvec(account).unwrap()));
    };
    whole(&account);
    for index in 0..200 {
        let at = now.plus(Span(index * 10));
        passes(&mut account, at, &limits, &ask(index, 10, 10));
        whole(&account);
        match index % 4 {
            0 => drop(account.checkpoint(at, &id(index), 10, index, Span::minutes(9))),
            1 => drop(account.settle(at, &id(index), Outcome::Released)),
            2 => drop(account.reclaim(at)),
            _ => account.reset(at, &limits, &[PolicyName::Daily]),
        }
        whole(&account);
    }
    account.reclaim(now.plus(Span::hours(1)));
    whole(&account);
}
