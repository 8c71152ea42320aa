//! Random numbers that are functions of a number: what sources draw from, the same in every run and on every machine.

/// Scrambles a number: every bit of it counts in every bit of the result (splitmix64's finaliser).
pub(super) fn mix(number: u64) -> u64 {
    let mut z = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Scales a random number to `0 .. limit`.
pub(super) fn scale(random: u64, limit: u64) -> u64 {
    ((u128::from(random) * u128::from(limit)) >> 64) as u64
}
