//! Which timers belong to parts of the SDK, such as windows, and to which part.
//!
//! A part shares the operator's timers with the author, so its tags must never meet the author's: those from [`RESERVED`] up
//! are the parts'. A part's tags follow from its name, not from its place among the declarations: pending timers outlive the
//! code that set them, and a new version may declare another part before this one.

use crate::context::Context;
use crate::declare::{Declare, TimeDomain};
use crate::error::Error;
use crate::timers::{Timer, Timers};

/// The lowest tag that is not the author's.
pub(crate) const RESERVED: u64 = 1 << 63;

/// The bits of a tag in which a part tells its own timers apart.
const OWN_BITS: u32 = 32;

/// The timers of one part in one domain. Several of one key at one time differ in a number of the part's choice.
pub(crate) struct PartTimers {
    timers: Timers,
    domain: TimeDomain,
    part: u64,
}

impl PartTimers {
    /// Sets a timer of the current key. Setting it twice is setting it once.
    #[inline]
    pub(crate) fn set(&self, cx: &Context<'_>, time_ms: i64, own: u32) {
        self.timers.set_of_part(cx, time_ms, self.part | u64::from(own));
    }

    /// Deletes a timer of the current key, if there is one.
    #[inline]
    pub(crate) fn delete(&self, cx: &Context<'_>, time_ms: i64, own: u32) {
        self.timers.delete_of_part(cx, time_ms, self.part | u64::from(own));
    }

    /// Returns the part's number of a timer that is due, or `None` if it is not this part's in this domain. The runner
    /// fails a call in which nobody took a part's timer: the author forgot to hand it on.
    pub(crate) fn take(&self, timer: Timer) -> Option<u32> {
        if timer.domain() != self.domain || part_of(timer.tag()) != Some(self.part) {
            return None;
        }
        self.timers.note_taken();
        // The upper half is the part.
        u32::try_from(timer.tag() & u64::from(u32::MAX)).ok()
    }
}

/// The parts that an operator declares.
#[derive(Default)]
pub(crate) struct Parts(Vec<(String, u64)>);

impl Parts {
    /// Adds a part, once, and returns what its tags begin with.
    fn add(&mut self, name: &str) -> u64 {
        let part = part_named(name);
        if !self.0.iter().any(|(known, _)| known == name) {
            self.0.push((name.into(), part));
        }
        part
    }

    /// Returns the name of the part that a tag belongs to, `None` for one of the author's or of a part that is no more.
    pub(crate) fn owner(&self, tag: u64) -> Option<&str> {
        let part = part_of(tag)?;
        self.0.iter().find(|(_, known)| *known == part).map(|(name, _)| name.as_str())
    }

    /// Checks that no two parts have the same tags.
    ///
    /// # Errors
    /// A permanent error that names both.
    pub(crate) fn check(&self) -> Result<(), Error> {
        for (index, (name, part)) in self.0.iter().enumerate() {
            if let Some((other, _)) = self.0[..index].iter().find(|(_, other)| other == part) {
                return Err(Error::permanent(format!(
                    "the timers of {other:?} and {name:?} cannot be told apart: give one of them another name"
                )));
            }
        }
        Ok(())
    }
}

impl Declare {
    /// Declares timers of a part in a domain. The name is that of the part, unique in the operator as its slots' names are.
    pub(crate) fn part_timers(&mut self, name: &str, domain: TimeDomain) -> PartTimers {
        let timers = match domain {
            TimeDomain::EventTime => self.event_timers(),
            TimeDomain::ProcessingTime => self.processing_timers(),
        };
        PartTimers { timers, domain, part: self.parts.add(name) }
    }
}

/// Whether a tag may not be the author's.
pub(crate) fn is_reserved(tag: u64) -> bool {
    tag >= RESERVED
}

/// What the tags of a part begin with: the reserved bit and 31 bits of a hash (FNV-1a) of its name. Stored with each pending
/// timer, so it never changes.
fn part_named(name: &str) -> u64 {
    let start = 0xcbf2_9ce4_8422_2325;
    let hash = name.bytes().fold(start, |hash: u64, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3));
    let folded = (hash ^ hash >> OWN_BITS) & u64::from(u32::MAX >> 1);
    RESERVED | folded << OWN_BITS
}

/// What a reserved tag begins with.
fn part_of(tag: u64) -> Option<u64> {
    is_reserved(tag).then_some(tag & !u64::from(u32::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::operator::{NoConfig, Operator};
    use crate::testing::{Harness, record};
    use crate::{Record, Value};

    #[test]
    fn tags_of_a_part_follow_from_its_name_for_ever() {
        assert_eq!(part_named("clicks"), 0xdd75_e08a_0000_0000);
        assert_eq!(part_named("totals"), 0x8fc6_b2bc_0000_0000);
        for name in ["a", "b", "windows", "join"] {
            let part = part_named(name);
            assert!(is_reserved(part) && part_of(part | 7) == Some(part));
        }
        assert_eq!(part_of(RESERVED - 1), None);
    }

    #[test]
    fn parts_with_the_same_tags_are_refused_by_name() {
        let mut parts = Parts::default();
        let part = parts.add("a");
        assert_eq!(parts.add("a"), part);
        assert_ne!(parts.add("b"), part);
        parts.check().unwrap();
        assert_eq!((parts.owner(part | 3), parts.owner(3), parts.owner(part_named("c"))), (Some("a"), None, None));
        parts.0.push(("c".into(), part));
        let error = parts.check().unwrap_err();
        assert_eq!(error.message(), "the timers of \"a\" and \"c\" cannot be told apart: give one of them another name");
    }

    /// A part that says when it was taken, and an author who has timers of the same times.
    struct Mixed {
        part: PartTimers,
        own: Timers,
        _seen: Value<u8>,
    }

    impl Operator for Mixed {
        type Config = NoConfig;

        fn declare(declare: &mut Declare) -> Self {
            let part = declare.part_timers("part", TimeDomain::EventTime);
            Self { part, own: declare.event_timers(), _seen: declare.value("seen") }
        }

        fn process(&mut self, record: Record<'_>, cx: &mut Context<'_>) -> Result<(), Error> {
            match record.text()? {
                "part" => self.part.set(cx, 5, 7),
                "moved" => {
                    self.part.delete(cx, 5, 7);
                    self.part.set(cx, 6, 8);
                }
                tag => self.own.set_tagged(cx, 5, tag.parse()?),
            }
            Ok(())
        }

        fn on_timer(&mut self, timer: Timer, cx: &mut Context<'_>) -> Result<(), Error> {
            if cx.key() == b"forgotten" {
                return Ok(());
            }
            let taken = self.part.take(timer);
            cx.emit_text((cx.key_text()?, if taken.is_some() { " part " } else { " own " }, taken.unwrap_or(0)))
        }
    }

    #[test]
    fn a_part_takes_its_own_timers_and_no_others() {
        let mut harness = Harness::<Mixed>::new();
        harness
            .process([record("part").key("a"), record("7").key("a"), record("part").key("b"), record("moved").key("b")])
            .unwrap();
        let out = harness.advance_watermark(10).unwrap();
        assert_eq!(out.texts(), ["a own 0", "a part 7", "b part 8"]);
    }

    #[test]
    fn a_tag_of_the_author_that_is_reserved_fails_the_call() {
        let mut harness = Harness::<Mixed>::new();
        let mine = RESERVED - 1;
        harness.process([record(mine.to_string()).key("a")]).unwrap();
        let error = harness.process([record(RESERVED.to_string()).key("a")]).unwrap_err();
        assert_eq!(
            error.message(),
            "the tag 9223372036854775808 of a timer is reserved: an operator's own tags are below 9223372036854775808"
        );
    }

    #[test]
    fn a_timer_of_a_part_that_nobody_takes_fails_the_call() {
        let mut harness = Harness::<Mixed>::new();
        harness.process([record("part").key("forgotten")]).unwrap();
        let error = harness.advance_watermark(10).unwrap_err();
        assert_eq!(error.message(), "`on_timer` got a timer of \"part\" and did not hand it on to it");
    }
}
