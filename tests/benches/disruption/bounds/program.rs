//! A linear programme of what to buy for some pods: classes of equal pods, and offers of nodes.

/// Resources that count: CPU in thousandths of a core, memory in bytes, GPUs, pods.
pub(crate) type Amounts = [i64; 4];

/// Pods with equal requests that may run on the same offers.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Class {
    /// What one of them requests.
    pub(crate) requests: Amounts,
    /// The offers that their constraints and taints admit, in the order of [`Program::offers`], whether they fit or not.
    pub(crate) admitted: Vec<bool>,
}

/// Nodes of one kind.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Offer {
    /// USD per hour.
    pub(crate) price: f64,
    /// What one of them holds beside its DaemonSets.
    pub(crate) room: Amounts,
    /// How many there are; `None` is as many as one likes.
    pub(crate) limit: Option<f64>,
}

/// What may be bought for which pods. How many pods of each class there are is the demand, which changes.
#[derive(Debug, Clone, Default)]
pub(crate) struct Program {
    pub(crate) classes: Vec<Class>,
    pub(crate) offers: Vec<Offer>,
}

impl Program {
    /// How many pods of a class one node of an offer holds if it holds no others.
    pub(crate) fn copies(&self, class: usize, offer: usize) -> i64 {
        let Class { requests, admitted } = &self.classes[class];
        if admitted[offer] { copies_that_fit(requests, &self.offers[offer].room) } else { 0 }
    }

    /// Leaves out offers that cost no less than another one that holds as much for the same classes.
    pub(crate) fn drop_dominated(&mut self) {
        let same_classes = |a: usize, b: usize| self.classes.iter().all(|class| class.admitted[a] == class.admitted[b]);
        let holds = |a: &Offer, b: &Offer| a.room.iter().zip(&b.room).all(|(a, b)| a >= b);
        let dominates = |a: usize, b: usize| {
            let (one, other) = (&self.offers[a], &self.offers[b]);
            let equal = one.price == other.price && one.room == other.room;
            one.limit.is_none()
                && other.limit.is_none()
                && one.price <= other.price
                && holds(one, other)
                && same_classes(a, b)
                && (!equal || a < b)
        };
        let count = self.offers.len();
        let keep: Vec<bool> = (0..count).map(|b| !(0..count).any(|a| a != b && dominates(a, b))).collect();
        let kept = |n: &usize| keep[*n];
        self.offers = (0..count).filter(kept).map(|n| self.offers[n].clone()).collect();
        for class in &mut self.classes {
            class.admitted = (0..count).filter(kept).map(|n| class.admitted[n]).collect();
        }
    }
}

/// How many pods with these requests fit in a room.
pub(crate) fn copies_that_fit(requests: &Amounts, room: &Amounts) -> i64 {
    let requested = requests.iter().zip(room).filter(|(need, _)| **need > 0);
    requested.map(|(need, room)| (*room).max(0) / need).min().unwrap_or(0)
}
