//! Notices by email, where the binding `EMAIL` and the sender `EMAIL_FROM` are there.

use worker::Env;
use worker::email::SendEmailBuilder;

use super::Notice;
use super::webhook::Told;
use crate::budget::within;
use crate::limits::Span;

const BINDING: &str = "EMAIL";
const SENDER: &str = "EMAIL_FROM";
const SUBJECT: &str = "Your API usage";
const BUDGET: Span = Span::seconds(15);

/// Whether this gateway can send email.
pub fn is_on(env: &Env) -> bool {
    sender(env).is_some() && env.send_email(BINDING).is_ok()
}

/// Sends a notice to `address` once.
pub async fn send(env: &Env, address: &str, notice: &Notice) -> Told {
    let (Some(from), Ok(email)) = (sender(env), env.send_email(BINDING)) else {
        return Told::No("email is not set up".to_owned(), None);
    };
    let message = SendEmailBuilder::builder(&from, address, SUBJECT)
        .text(&notice.sentence())
        .build();
    match within(BUDGET, email.send_with_builder(&message)).await {
        Ok(Ok(_)) => Told::Yes,
        Ok(Err(_)) => Told::No("refused".to_owned(), None),
        Err(_) => Told::No("timed out".to_owned(), None),
    }
}

fn sender(env: &Env) -> Option<String> {
    let sender = env.var(SENDER).ok()?.to_string();
    (!sender.is_empty()).then_some(sender)
}
