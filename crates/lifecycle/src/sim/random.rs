//! A small seeded source of random numbers (SplitMix64). Owns no entropy: the same seed gives the same run.

/// The source.
#[derive(Clone, Debug)]
pub(crate) struct Random(u64);

impl Random {
    /// A source that repeats itself exactly for the same seed and stream.
    pub(crate) fn new(seed: u64, stream: u64) -> Self {
        let mut random = Self(seed ^ stream.wrapping_mul(0xD6E8_FEB8_6659_FD93));
        random.next();
        random
    }

    /// The next number.
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// A number below `limit`, which is at least 1.
    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }

    /// True once in so many times.
    pub(crate) fn one_in(&mut self, times: u64) -> bool {
        self.below(times) == 0
    }

    /// A length of time from `least` to below `most`, in milliseconds.
    pub(crate) fn ms(&mut self, least: i64, most: i64) -> i64 {
        let span = u64::try_from(most - least).unwrap_or(1).max(1);
        least + i64::try_from(self.below(span)).unwrap_or(0)
    }
}
