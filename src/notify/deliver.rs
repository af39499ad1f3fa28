use std::rc::Rc;

use worker::Env;

use super::message::{Channel, NoticeMessage};
use super::webhook::{self, Told};
use super::{Notice, email, resolve, schedule};
use crate::clock;
use crate::http::targets::is_public_target;
use crate::ledger::notifications::{self, Parcel};
use crate::limits::{Millis, Span};
use crate::queues::{Fate, RETRY};
use crate::settings::Settings;

/// How long one consumer may take for an attempt; longer than any receiver gets.
const LEASE: Span = Span::seconds(30);

/// One attempt to deliver a notice by one channel.
pub struct Attempt<'a> {
    /// The bindings.
    pub env: &'a Env,
    /// The notice's id.
    pub id: &'a str,
    /// The way.
    pub channel: Channel,
    /// How many attempts came before.
    pub number: u64,
}

/// How an attempt ended.
enum Result {
    Delivered,
    /// Never to be tried again.
    Failed(String),
    /// To be tried again.
    Later(String, Option<Span>),
}

impl Attempt<'_> {
    /// Makes the attempt, unless it was made before or is not due yet.
    pub async fn make(&self) -> Fate {
        let parcel = match notifications::parcel(self.env, self.id, self.channel.word()).await {
            Ok(Some(parcel)) => parcel,
            Ok(None) => return Fate::Done,
            Err(_) => return Fate::Retry(RETRY),
        };
        if parcel.status != "pending" || self.number < parcel.attempts {
            return Fate::Done;
        }
        let settings = Settings::of(self.env);
        let now = clock::now(&settings);
        let wait = Millis(parcel.next_attempt_at_ms).since(now);
        if wait > Span::ZERO {
            return self.follow_up(parcel.attempts, wait).await;
        }
        let (channel, until) = (self.channel.word(), now.plus(LEASE));
        match notifications::begin(self.env, self.id, channel, parcel.attempts, until, now).await {
            Ok(true) => {}
            // Should they end in the middle, this message is needed after all.
            Ok(false) => return self.follow_up(parcel.attempts, LEASE).await,
            Err(_) => return Fate::Retry(RETRY),
        }
        let result = match self.channel {
            Channel::Webhook => self.webhook(&parcel, &settings).await,
            Channel::Email => self.email(&parcel).await,
        };
        self.record(&parcel, result, clock::now(&settings)).await
    }

    async fn webhook(&self, parcel: &Parcel, settings: &Rc<Settings>) -> Result {
        let Some(url) = parcel.webhook_url.as_deref() else {
            return Result::Failed("the user has no webhook".to_owned());
        };
        if !is_public_target(url, !settings.production) {
            return Result::Failed("the address is not public".to_owned());
        }
        if let Some(resolver) = &settings.dns_resolver_url
            && resolve::leads_inside(resolver, url).await
        {
            return Result::Failed("the address is not public".to_owned());
        }
        let Some(secret) = &settings.webhook_secret else {
            return Result::Later("WEBHOOK_SECRET is not set".to_owned(), None);
        };
        let now = clock::now(settings);
        match webhook::post(url, &parcel.notice(), secret, now).await {
            Ok(Told::Yes) => Result::Delivered,
            Ok(Told::Gone) => self.disable(parcel, url, now).await,
            Ok(Told::No(why, wait)) => Result::Later(why, wait),
            Err(bad) => Result::Later(bad.to_string(), None),
        }
    }

    /// 410: the receiver wants no more of it. The address is taken off the user, who is told.
    async fn disable(&self, parcel: &Parcel, url: &str, now: Millis) -> Result {
        let news = Notice::webhook_disabled(&parcel.user_id, url, self.id, now);
        match notifications::disable_webhook(self.env, url, &news).await {
            Ok(()) => Result::Failed("410".to_owned()),
            Err(_) => Result::Later("410".to_owned(), None),
        }
    }

    async fn email(&self, parcel: &Parcel) -> Result {
        let Some(address) = parcel.email.as_deref() else {
            return Result::Failed("the user has no email address".to_owned());
        };
        match email::send(self.env, address, &parcel.notice()).await {
            Told::Yes => Result::Delivered,
            Told::Gone => Result::Failed("refused".to_owned()),
            Told::No(why, wait) => Result::Later(why, wait),
        }
    }

    /// The next attempt is asked for before this one is written down: should that be lost, the same
    /// attempt is made again with the same id, which receivers tell apart.
    async fn record(&self, parcel: &Parcel, result: Result, now: Millis) -> Fate {
        let attempts = parcel.attempts.saturating_add(1);
        let (status, answer, next) = match result {
            Result::Delivered => ("delivered", None, None),
            Result::Failed(why) => ("failed", Some(why), None),
            Result::Later(why, wait) => {
                match schedule::next_attempt(self.id, attempts, wait, now) {
                    Some(next) => ("pending", Some(why), Some(next)),
                    None => ("failed", Some(why), None),
                }
            }
        };
        if let Some(next) = next
            && self.follow_up(attempts, next.since(now)).await != Fate::Done
        {
            return Fate::Retry(RETRY);
        }
        let outcome = notifications::Outcome {
            status,
            answer: answer.as_deref(),
            next,
        };
        let channel = self.channel.word();
        match notifications::record(self.env, self.id, channel, parcel.attempts, &outcome).await {
            Ok(()) => Fate::Done,
            Err(_) if next.is_some() => Fate::Done,
            Err(_) => Fate::Retry(RETRY),
        }
    }

    async fn follow_up(&self, attempt: u64, wait: Span) -> Fate {
        let message = NoticeMessage::Delivery {
            id: self.id.to_owned(),
            channel: self.channel,
            attempt,
        };
        match message.send(self.env, wait).await {
            Ok(()) => Fate::Done,
            Err(_) => Fate::Retry(RETRY),
        }
    }
}
