//! Related resources: Machines, scale-set instances, snapshots, public IPs and load balancer frontends.

use crate::cloud::faults::ListedKind;
use crate::cloud::faults::ListingFault;
use crate::cloud::refusal::Refusal;
use crate::cloud::{Cloud, listing};
use jiff::Timestamp;
use napkeeper_core::model::azure::cloud::{ProvisioningState, Tags};
use napkeeper_core::model::azure::inventory::{ListFailure, Listing};
use napkeeper_core::model::azure::related::{RelatedDetail, RelatedResource};
use napkeeper_core::model::names::ArmId;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The agent pool that every cluster has.
pub(crate) const SYSTEM_POOL: &str = "system";

/// Resources that are listed only for their links.
#[derive(Debug, Clone, Default)]
pub(in crate::cloud) struct RelatedResources {
    present: BTreeMap<ArmId, (Timestamp, Arc<RelatedResource>)>,
    deleted: Vec<(Timestamp, Arc<RelatedResource>)>,
}

impl Cloud {
    /// All related resources that exist, by id.
    pub fn related_resources(&self) -> impl Iterator<Item = &Arc<RelatedResource>> {
        self.related.present.values().map(|(_, one)| one)
    }

    /// The id of a Machine of the cluster; `None` where the group belongs to no cluster.
    #[must_use]
    pub fn machine_id(&self, pool: &str, name: &str) -> Option<ArmId> {
        let cluster = self.settings.managed_by.as_ref()?;
        ArmId::new(format!("{cluster}/agentPools/{pool}/machines/{name}")).ok()
    }

    /// The id of something of this group, by its type (`Microsoft.Network/publicIPAddresses`) and name. Names of
    /// parts follow their whole (`lb/frontendIPConfigurations/f`).
    #[must_use]
    pub fn other_id(&self, of: &str, name: &str) -> ArmId {
        self.id_of(of, name)
    }

    /// Adds a related resource.
    ///
    /// # Errors
    /// [`Refusal`] if the id exists, if it is in neither the group nor the cluster, or if it has a backend that it
    /// cannot reach.
    pub fn add_related(&mut self, new: RelatedResource, now: Timestamp) -> Result<ArmId, Refusal> {
        self.advance(now);
        let within = |whole: &ArmId| new.id.folded().strip_prefix(whole.folded()).is_some_and(|r| r.starts_with('/'));
        let is_machine = matches!(new.detail, RelatedDetail::AksMachine { .. });
        let home = if is_machine { self.settings.managed_by.as_ref() } else { Some(&self.settings.group) };
        if !home.is_some_and(within) {
            return Err(Refusal::NotFound(new.id));
        }
        if self.related.present.contains_key(&new.id) {
            return Err(Refusal::Taken(new.id));
        }
        if let RelatedDetail::LoadBalancerFrontend { rules: 0, outbound_rules: 0, backends: 1.., .. } = new.detail {
            return Err(Refusal::Invalid("a frontend without rules leads to no backends".into()));
        }
        let id = new.id.clone();
        self.related.present.insert(id.clone(), (now, Arc::new(new)));
        Ok(id)
    }

    /// Removes a related resource.
    ///
    /// # Errors
    /// [`Refusal`] if it does not exist.
    pub fn remove_related(&mut self, id: &ArmId, now: Timestamp) -> Result<(), Refusal> {
        self.advance(now);
        self.operations.cancel(id);
        self.take_related(id, now).map(drop).ok_or_else(|| Refusal::NotFound(id.clone()))
    }

    pub(in crate::cloud) fn take_related(&mut self, id: &ArmId, at: Timestamp) -> Option<Arc<RelatedResource>> {
        let (_, deleted) = self.related.present.remove(id)?;
        self.related.deleted.push((at, Arc::clone(&deleted)));
        Some(deleted)
    }

    pub(in crate::cloud) fn edit_related(&mut self, id: &ArmId, change: impl FnOnce(&mut RelatedResource)) {
        if let Some((_, one)) = self.related.present.get_mut(id) {
            change(Arc::make_mut(one));
        }
    }

    /// The Machine of a VM.
    pub(in crate::cloud) fn machine_of(&self, vm: &ArmId) -> Option<ArmId> {
        let stands = |one: &&Arc<RelatedResource>| matches!(&one.detail, RelatedDetail::AksMachine { vm: Some(of), .. } if of == vm);
        self.related_resources().find(stands).map(|one| one.id.clone())
    }

    /// Changes a related resource: a copy ends, an address is released.
    ///
    /// # Errors
    /// [`Refusal`] if it does not exist.
    pub fn change_related(
        &mut self,
        id: &ArmId,
        change: impl FnOnce(&mut RelatedResource),
        now: Timestamp,
    ) -> Result<(), Refusal> {
        self.advance(now);
        let found = self.related.present.get_mut(id);
        let (_, one) = found.ok_or_else(|| Refusal::NotFound(id.clone()))?;
        change(Arc::make_mut(one));
        Ok(())
    }

    /// A related resource that exists.
    #[must_use]
    pub fn related(&self, id: &ArmId) -> Option<&Arc<RelatedResource>> {
        self.related.present.get(id).map(|(_, one)| one)
    }

    /// Lists Machines, scale-set instances, snapshots, public IPs and frontends, by id.
    ///
    /// # Errors
    /// [`ListFailure`] while listings fail by a fault, or Azure is unavailable.
    pub fn list_related(&mut self, now: Timestamp) -> Listing<RelatedResource> {
        let failed =
            |refusal: Refusal| ListFailure::of_azure("other resources of the node resource group", refusal.into());
        self.advance(now);
        self.faults.admit(now).map_err(failed)?;
        for kind in ListedKind::RELATED {
            self.check_listing(kind, now).map_err(failed)?;
        }
        let shown = ListedKind::RELATED.into_iter().flat_map(|kind| self.listed_related(kind, now));
        let shown: BTreeMap<_, _> = shown.map(|one| (one.id.clone(), listed(one))).collect();
        Ok(shown.into_values().collect())
    }

    /// Why listings of this kind fail now, if so.
    pub(crate) fn check_listing(&self, kind: ListedKind, now: Timestamp) -> Result<(), Refusal> {
        match self.faults.listing_fault(kind, now) {
            Some(ListingFault::Forbidden) => Err(Refusal::ListForbidden),
            Some(ListingFault::BrokenPage) => Err(Refusal::Unavailable),
            Some(ListingFault::Absent) => Err(Refusal::NotFound(self.settings.group.clone())),
            None => Ok(()),
        }
    }

    /// A complete listing of one kind, by id.
    pub(crate) fn listed_related(&self, kind: ListedKind, now: Timestamp) -> Vec<Arc<RelatedResource>> {
        let (hides, keeps) = self.faults.lag(kind);
        let of_kind = |one: &&Arc<RelatedResource>| ListedKind::of_detail(&one.detail) == kind;
        let born = self.related.present.values().filter(|(born, _)| *born + hides <= now);
        let deleted = self.related.deleted.iter().filter(|(at, _)| *at + keeps > now);
        // An existing resource replaces a ghost of its name.
        let all = deleted.map(|(_, one)| one).chain(born.map(|(_, one)| one)).filter(of_kind);
        let by_id: BTreeMap<_, _> = all.map(|one| (one.id.clone(), Arc::clone(one))).collect();
        let mut shown: Vec<_> = by_id.into_values().collect();
        if self.faults.uppercase_ids {
            let seed = self.settings.seed;
            shown.iter_mut().for_each(|one| listing::uppercase_links(Arc::make_mut(one), seed));
        }
        shown
    }

    /// The agent pools of the cluster.
    pub(crate) fn pools(&self, now: Timestamp) -> Vec<String> {
        let machines = self.listed_related(ListedKind::Machines, now);
        let pools = machines.iter().filter_map(|machine| Some(pool_of(&machine.id)?.to_owned()));
        let mut pools: Vec<String> = pools.chain([SYSTEM_POOL.to_owned()]).collect();
        pools.sort_unstable();
        pools.dedup();
        pools
    }
}

/// The pool of a Machine, folded.
pub(crate) fn pool_of(machine: &ArmId) -> Option<&str> {
    let mut words = machine.folded().rsplit('/');
    words.nth(2)
}

/// A related resource as it is listed. The published Machines API has neither tags nor states nor ages.
fn listed(one: Arc<RelatedResource>) -> Arc<RelatedResource> {
    let RelatedDetail::AksMachine { vm, .. } = &one.detail else { return one };
    Arc::new(RelatedResource {
        id: one.id.clone(),
        tags: Tags::new(),
        created_at: None,
        detail: RelatedDetail::AksMachine { vm: vm.clone(), state: ProvisioningState::Succeeded },
    })
}
