//! The plan one step up, to be named to somebody who has run out.

use super::Plan;

/// The plan of the smallest `daily_limit` above that of `current`, unlimited being the largest; `None` if
/// `current` is at the top. Of several alike it is the one of fewer tokens a month, then the first by id.
pub fn next_above<'a>(current: &Plan, plans: impl Iterator<Item = &'a Plan>) -> Option<&'a Plan> {
    let above = plans.filter(|plan| height(plan.daily_limit) > height(current.daily_limit));
    above.min_by_key(|plan| {
        let tokens = height(plan.monthly_token_limit);
        (height(plan.daily_limit), tokens, &plan.plan_id)
    })
}

/// No count reaches what stands for unlimited.
const fn height(limit: Option<u64>) -> u64 {
    match limit {
        Some(limit) => limit,
        None => u64::MAX,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn plan(id: &str, daily: Option<u64>, monthly: Option<u64>) -> Plan {
        let fields = json!({
            "plan_id": id, "name": id, "daily_limit": daily, "monthly_token_limit": monthly,
        });
        Plan::from_value(fields).unwrap()
    }

    #[test]
    fn it_is_the_cheapest_of_those_with_more() {
        let plans = [
            plan("top", None, None),
            plan("pro", Some(100), None),
            plan("mid", Some(50), Some(2)),
            plan("also-mid", Some(50), Some(3)),
            plan("none", Some(0), None),
            plan("free", Some(10), None),
        ];
        let next = |id: &str| {
            let current = plans.iter().find(|p| p.plan_id == id).unwrap();
            next_above(current, plans.iter()).map(|p| p.plan_id.as_str())
        };
        assert_eq!(next("none"), Some("free"));
        assert_eq!(next("free"), Some("mid"));
        assert_eq!(next("also-mid"), Some("pro"));
        assert_eq!(next("pro"), Some("top"));
        assert_eq!(next("top"), None);
    }
}
