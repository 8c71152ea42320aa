//! Changing the values within what is stored of an entry: beside the stamp that it may have, element by element in a list.

use super::list::{self, Elements};
use super::ttl::STAMP_BYTES;
use crate::guest::StateKind;
use crate::time::ProcessingTime;

/// How what is stored in a slot is put together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoredForm {
    /// The slot's kind.
    pub kind: StateKind,
    /// Whether values have stamps: the slot has a time to live.
    pub stamped: bool,
}

/// Appends what is stored with each of its values as `rewrite` appends it.
///
/// # Errors
/// What `rewrite` returns, or `broken` for what is not of this form.
pub(crate) fn rewrite_values<E>(
    form: StoredForm,
    stored: &[u8],
    out: &mut Vec<u8>,
    broken: impl FnOnce(&'static str) -> E,
    mut rewrite: impl FnMut(&[u8], &mut Vec<u8>) -> Result<(), E>,
) -> Result<(), E> {
    if !form.kind.is_list() {
        if !form.stamped {
            return rewrite(stored, out);
        }
        let Some((stamp, value)) = stored.split_first_chunk::<STAMP_BYTES>() else {
            return Err(broken("a value that expires has no stamp"));
        };
        out.extend_from_slice(stamp);
        return rewrite(value, out);
    }
    if Elements::new(stored, form.stamped).check().is_err() {
        return Err(broken("a list's chunk does not hold its elements"));
    }
    let (mut chunk, mut new) = (Vec::with_capacity(stored.len()), Vec::new());
    for (stamp_at, element) in Elements::new(stored, form.stamped) {
        new.clear();
        rewrite(element, &mut new)?;
        let stamp = stored.get(stamp_at..).and_then(|rest| rest.first_chunk::<STAMP_BYTES>());
        let stamp = stamp.filter(|_| form.stamped).map(|stamp| ProcessingTime(i64::from_le_bytes(*stamp)));
        list::append(&mut chunk, &new, stamp);
    }
    out.extend_from_slice(&chunk);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn doubled(form: StoredForm, stored: &[u8]) -> Result<Vec<u8>, &'static str> {
        let mut out = Vec::new();
        rewrite_values(
            form,
            stored,
            &mut out,
            |what| what,
            |value, out| {
                out.extend(value.iter().map(|byte| byte * 2));
                Ok(())
            },
        )?;
        Ok(out)
    }

    #[test]
    fn only_values_change() {
        let plain = StoredForm { kind: StateKind::Map, stamped: false };
        assert_eq!(doubled(plain, &[1, 2]), Ok(vec![2, 4]));
        let stamped = StoredForm { kind: StateKind::Value, stamped: true };
        assert_eq!(doubled(stamped, &[1, 1, 1, 1, 1, 1, 1, 1, 7]), Ok(vec![1, 1, 1, 1, 1, 1, 1, 1, 14]));
        assert!(doubled(stamped, &[1; 7]).is_err());
    }

    #[test]
    fn every_element_of_a_list_changes_and_keeps_its_stamp() {
        for stamped in [false, true] {
            let form = StoredForm { kind: StateKind::List, stamped };
            let chunk = |elements: [&[u8]; 3]| {
                let mut chunk = Vec::new();
                for (at, element) in (5..).zip(elements) {
                    list::append(&mut chunk, element, stamped.then_some(ProcessingTime(at)));
                }
                chunk
            };
            assert_eq!(doubled(form, &chunk([&[1], &[], &[2, 3]])), Ok(chunk([&[2], &[], &[4, 6]])));
            assert!(doubled(form, &chunk([&[1], &[], &[2, 3]])[..5]).is_err());
        }
    }
}
