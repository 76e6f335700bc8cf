//! Late news: what happens under a seed where Azure tells the truth minutes later?

use super::{FAULTS, Pen, key};
use crate::world::{Deed, Mischief};
use jiff::SignedDuration;

impl Pen {
    /// What Azure has accepted fails minutes later: VMs that never run, whose NICs are then reserved for them for a
    /// while, and deletions after which everything is still there.
    pub(super) fn late_failures(&mut self) {
        for deletes in [false, false, true] {
            let at = self.sometime();
            let times = u32::try_from(self.chance.between(1, 4)).unwrap_or(1);
            self.mischief(at, Mischief::FailLate { deletes, times });
            self.write(at + SignedDuration::from_secs(1), Deed::Scale { workload: key("web"), replicas: 14 });
            let nth = usize::try_from(self.chance.between(0, 9)).unwrap_or(0);
            let gone = at + self.minutes(1, 5);
            self.write(gone, Deed::DeleteClaim { nth });
        }
        self.mischief(FAULTS, Mischief::FailNothing);
    }

    /// Listings lag most of the time, while nodes come and go and leave things behind.
    pub(super) fn lag(&mut self) {
        self.leaks();
        self.meddling();
        for hour in 0..20 {
            let from = SignedDuration::from_mins(hour * 60) + self.minutes(1, 20);
            let (lag, lasting) = (self.minutes(2, 20), self.minutes(10, 40));
            self.mischief(from, Mischief::ListLag(lag));
            self.mischief(from + lasting, Mischief::ListLag(SignedDuration::ZERO));
        }
    }
}
