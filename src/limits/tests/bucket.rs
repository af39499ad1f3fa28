use proptest::prelude::*;

use super::super::bucket::Bucket;
use super::*;

/// How much is missing, worked out from all that was ever taken and given back: the largest surplus of
/// any stretch that ends now. `refill` is what comes back a millisecond, in 60,000ths.
fn missing(history: &[(Millis, i128)], now: Millis, refill: u64) -> i128 {
    let mut sum = 0;
    let mut most = 0;
    for (at, amount) in history.iter().rev() {
        sum += amount * 60_000;
        most = most.max(sum - i128::from(now.since(*at).0) * i128::from(refill));
    }
    most
}

#[derive(Clone, Debug)]
enum Step {
    Wait(u64),
    Take(u64),
    GiveBack(u64),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        3 => (0_u64..20_000).prop_map(Step::Wait),
        1 => (0_u64..3).prop_map(Step::Wait),
        5 => (1_u64..8).prop_map(Step::Take),
        1 => (1_u64..5).prop_map(Step::GiveBack),
    ];
    prop::collection::vec(step, 1..60)
}

proptest! {
    /// The bucket lets pass exactly what the history allows, and its wait is exact.
    #[test]
    fn it_is_what_its_history_makes_it(capacity in 1_u64..12, refill in 1_u64..90, steps in steps()) {
        let limit = BucketLimit { capacity, refill_per_minute: refill };
        let mut bucket = Bucket::default();
        let mut history = Vec::new();
        let mut now = NOON;
        for step in steps {
            match step {
                Step::Wait(ms) => now = now.plus(Span(ms)),
                Step::GiveBack(amount) => {
                    bucket.touch(now, Some(limit));
                    bucket.give_back(now, amount);
                    history.push((now, -i128::from(amount)));
                }
                Step::Take(cost) => {
                    bucket.touch(now, Some(limit));
                    let fits = |at| missing(&history, at, refill) + i128::from(cost) * 60_000
                        <= i128::from(capacity) * 60_000;
                    let wait = bucket.wait(now, capacity, cost).unwrap();
                    prop_assert_eq!(wait == Span::ZERO, fits(now));
                    if cost <= capacity {
                        prop_assert!(fits(now.plus(wait)));
                        prop_assert!(wait == Span::ZERO || !fits(now.plus(Span(wait.0 - 1))));
                    }
                    if wait == Span::ZERO {
                        bucket.take(cost);
                        history.push((now, i128::from(cost)));
                    }
                    let left = i128::from(capacity) * 60_000 - missing(&history, now, refill);
                    prop_assert_eq!(i128::from(bucket.left(capacity)), left.max(0) / 60_000);
                }
            }
        }
    }

    /// In no stretch of time does more pass than the capacity and what refills in it.
    #[test]
    fn no_stretch_sees_more_than_it_may(capacity in 1_u64..10, refill in 1_u64..60, waits in prop::collection::vec(0_u64..5_000, 1..120)) {
        let limit = BucketLimit { capacity, refill_per_minute: refill };
        let mut bucket = Bucket::default();
        let mut now = NOON;
        let mut passed: Vec<Millis> = Vec::new();
        for wait in waits {
            now = now.plus(Span(wait));
            bucket.touch(now, Some(limit));
            if bucket.wait(now, capacity, 1) == Some(Span::ZERO) {
                bucket.take(1);
                passed.push(now);
            }
        }
        for (index, from) in passed.iter().enumerate() {
            for (count, to) in passed[index..].iter().enumerate() {
                let most = capacity * 60_000 + to.since(*from).0 * refill;
                prop_assert!((count as u64 + 1) * 60_000 <= most);
            }
        }
    }
}

#[test]
fn a_remainder_is_carried_however_often_it_is_asked() {
    let limit = BucketLimit {
        capacity: 5,
        refill_per_minute: 7,
    };
    let mut bucket = Bucket::default();
    bucket.touch(NOON, Some(limit));
    bucket.take(5);
    // 60,000 / 7 = 8,571.4 ms a call: no sum of rounded steps may gain or lose the fraction.
    for ms in 1..8_572 {
        bucket.touch(NOON.plus(Span(ms)), Some(limit));
        assert_eq!(bucket.left(5), 0, "after {ms} ms");
    }
    bucket.touch(NOON.plus(Span(8_572)), Some(limit));
    assert_eq!(bucket.left(5), 1);
    for ms in 8_573..42_858 {
        bucket.touch(NOON.plus(Span(ms)), Some(limit));
        assert!(bucket.left(5) < 5, "after {ms} ms");
    }
    bucket.touch(NOON.plus(Span(42_858)), Some(limit));
    assert_eq!(bucket.left(5), 5);
}

#[test]
fn huge_numbers_saturate() {
    let limit = BucketLimit {
        capacity: u64::MAX,
        refill_per_minute: u64::MAX,
    };
    let mut bucket = Bucket::default();
    bucket.touch(NOON, Some(limit));
    for _ in 0..3 {
        bucket.take(u64::MAX);
    }
    assert_eq!(bucket.left(u64::MAX), 0);
    bucket.touch(Millis(u64::MAX), Some(limit));
    assert_eq!(bucket.left(u64::MAX), u64::MAX);
}

#[test]
fn a_bucket_that_never_refills_says_so() {
    let limit = BucketLimit {
        capacity: 1,
        refill_per_minute: 0,
    };
    let mut bucket = Bucket::default();
    bucket.touch(NOON, Some(limit));
    bucket.take(1);
    bucket.touch(NOON.plus(DAY), Some(limit));
    assert_eq!(bucket.wait(NOON.plus(DAY), 1, 1), None);
    assert_eq!(bucket.full_at(), None);
}
