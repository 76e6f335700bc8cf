//! The adapter reads sizes, quota, prices, subnets, locks and images from the simulated Azure.

use jiff::{SignedDuration, Timestamp};
use napkeeper_azure::{Azure, AzureSettings, RetailPrices};
use napkeeper_core::catalog::live::{
    AzureFacts, CapacityReservation, Fact, ImageDefinition, LockLevel, PriceSheet, Quota, QuotaUsage, SizeListing,
    catalog_from_facts, price_list,
};
use napkeeper_core::catalog::{CapacityType, Catalog, OfferingKey, OsDiskStorage, RegionCatalog};
use napkeeper_core::model::azure::cloud::{ResourceDetail, Tags};
use napkeeper_core::model::errors::CloudErrorCode;
use napkeeper_core::model::names::{ArmId, ClaimName, Region, VmSize, Zone};
use napkeeper_core::model::settings::ClusterIdentity;
use napkeeper_core::plan::{CloudRequest, KubeletSpec, NicSpec, Reply, VmSpec};
use napkeeper_sim::cloud::{Cloud, CloudSettings, ListingFault};
use napkeeper_tests::arm::{self, InProcess};
use std::collections::BTreeSet;
use std::sync::Arc;

pub(super) const SUBNET: &str =
    "/subscriptions/s/resourceGroups/net/providers/Microsoft.Network/virtualNetworks/v/subnets/aks-subnet";

pub(super) struct Lab {
    pub(super) wire: Arc<InProcess>,
    pub(super) azure: Azure,
    pub(super) region: RegionCatalog,
    now: Timestamp,
}

pub(super) fn lab() -> Lab {
    let region = Catalog::embedded().unwrap().region(&Region::new("westeurope").unwrap()).unwrap();
    let cluster = "/subscriptions/s/resourceGroups/g/providers/Microsoft.ContainerService/managedClusters/c";
    let identity = ClusterIdentity {
        id: ArmId::new(cluster).unwrap(),
        tag_value: Arc::from("c"),
        node_resource_group: ArmId::new("/subscriptions/s/resourceGroups/MC_g").unwrap(),
        region: region.region.clone(),
    };
    let settings = CloudSettings::of_region(&identity, &region, 1);
    let now = "2026-11-21T20:00:00Z".parse().unwrap();
    let wire = InProcess::new(Cloud::new(settings.clone()), now);
    let azure = arm::azure(&settings, wire.clone());
    Lab { wire, azure, region, now }
}

impl Lab {
    pub(super) fn add_vm(&self, name: &str, size: &str, capacity_type: CapacityType) {
        let zone = Zone::of(&self.region.region, 1);
        let offering = OfferingKey { size: VmSize::new(size).unwrap(), zone, capacity_type };
        self.wire.with(|cloud, now| cloud.add_vm(name, Tags::new(), &offering, *now)).unwrap();
    }

    async fn listing(&self) -> SizeListing {
        let catalog = Catalog::embedded().unwrap();
        let gpus = |name: &VmSize| catalog.size(name).and_then(|facts| facts.gpu.clone());
        let rows = self.azure.sizes().await.unwrap();
        let sizes = rows.iter().map(|row| row.read(&self.region.region, gpus).unwrap()).collect();
        SizeListing::default().merge(sizes, &BTreeSet::new(), 1, self.now).unwrap()
    }
}

fn entry(usages: &[QuotaUsage], name: &str) -> (u64, u64) {
    let found = usages.iter().find(|u| &*u.name == name).unwrap();
    (found.used, found.limit)
}

#[tokio::test]
async fn the_listing_and_the_price_list_make_the_catalogue_that_is_sold() {
    let lab = lab();
    let prices = RetailPrices::new(AzureSettings::ENDPOINT, lab.wire.clone()).unwrap();
    let meters = prices.meters(&lab.region.region).await.unwrap();
    assert!(meters.len() > lab.region.sizes.len() * 3, "Windows and others are in the list");
    let known = AzureFacts {
        sizes: Some(Fact { as_of: lab.now, value: Arc::new(lab.listing().await) }),
        prices: Some(Fact { as_of: lab.now, value: Arc::new(price_list(&meters, lab.now)) }),
        ..AzureFacts::default()
    };
    let made = catalog_from_facts(&known, &lab.region, &PriceSheet::default());
    assert_eq!(made.sizes.len(), lab.region.sizes.len(), "all pages were read");
    for (made, sold) in made.sizes.iter().zip(&lab.region.sizes) {
        assert_eq!(made.facts, sold.facts);
        assert_eq!((made.on_demand, made.spot), (sold.on_demand, sold.spot), "{}", sold.facts.name);
        // The simulated Azure sells a size in the zones in which it has a price.
        if sold.on_demand.is_some() || sold.spot.is_some() {
            assert_eq!(made.zones, sold.zones, "{}", sold.facts.name);
        }
    }
}

#[tokio::test]
async fn a_listing_whose_last_page_fails_is_a_failure() {
    let lab = lab();
    let end = lab.now + SignedDuration::from_mins(1);
    lab.wire.with(|cloud, _| cloud.faults.listing = Some((end, ListingFault::BrokenPage)));
    assert_eq!(lab.azure.sizes().await.unwrap_err().code, CloudErrorCode::Unavailable);
    lab.wire.set_now(end);
    assert!(lab.azure.sizes().await.unwrap().len() > 400);
}

#[tokio::test]
async fn usages_and_addresses_follow_running_vms() {
    let lab = lab();
    lab.wire.with(|cloud, _| {
        cloud.limits.families.insert(Arc::from("standardDSv5Family"), 10);
        cloud.limits.subnet = Some(251);
    });
    let subnet = [ArmId::new(SUBNET.to_uppercase().replace("/SUBSCRIPTIONS/", "/subscriptions/")).unwrap()];
    let before = lab.azure.subnets(&subnet).await.unwrap();
    lab.add_vm("a", "Standard_D4s_v5", CapacityType::OnDemand);
    lab.add_vm("b", "Standard_D2s_v5", CapacityType::Spot);
    let usages = lab.azure.usages().await.unwrap();
    assert_eq!(entry(&usages, "standardDSv5Family"), (4, 10));
    assert_eq!((entry(&usages, "cores").0, entry(&usages, "lowPriorityCores").0), (4, 2));
    assert_eq!(Quota::new(lab.now, usages.clone()).usages().count(), usages.len());
    let after = lab.azure.subnets(&subnet).await.unwrap();
    assert_eq!((before[0].used, before[0].usable), (0, 251));
    assert_eq!((after[0].used, after[0].free()), (2, 249));
    let other = [ArmId::new(SUBNET.replace("aks-subnet", "another")).unwrap()];
    assert!(lab.azure.subnets(&other).await.unwrap_err().message.contains("no subnet another"));
}

#[tokio::test]
async fn locks_and_images_are_read() {
    let lab = lab();
    assert_eq!(lab.azure.group_locks().await.unwrap(), []);
    let end = lab.now + SignedDuration::from_mins(1);
    lab.wire.with(|cloud, _| cloud.faults.deletes_locked_until = Some(end));
    let locks = lab.azure.group_locks().await.unwrap();
    assert_eq!((locks.len(), locks[0].level), (1, LockLevel::CanNotDelete));
    let images = lab.azure.images(&ImageDefinition::all(33)).await.unwrap();
    assert_eq!(images.len(), ImageDefinition::all(33).len());
    let version = &images["2204gen2containerd"];
    assert_eq!(&*version.version, "202608.01.0", "the newest, but for one that is not to be taken");
    assert!(version.published_at.is_some());
}

#[tokio::test]
async fn the_simulated_azure_knows_the_api_versions() {
    let lab = lab();
    let ask = |path: &str| {
        let conditions = napkeeper_sim::arm::Conditions::default();
        let request = napkeeper_sim::arm::Request {
            method: "GET",
            origin: "https://a",
            path_and_query: path,
            body: b"",
            conditions,
        };
        lab.wire.with(|cloud, now| napkeeper_sim::arm::handle(cloud, &request, *now).status)
    };
    let compute = "/subscriptions/s/providers/Microsoft.Compute/locations/westeurope";
    let all = ImageDefinition::all(33);
    let gallery = all.iter().find(|image| image.name == "V3gen2").unwrap().gallery.name();
    for (path, good) in [
        (format!("{compute}/usages"), "2024-07-01"),
        (format!("{}/usages", SUBNET.replace("/subnets/aks-subnet", "")), "2024-05-01"),
        (format!("{compute}/communityGalleries/{gallery}/images/V3gen2/versions"), "2023-07-03"),
    ] {
        assert_eq!(ask(&format!("{path}?api-version={good}")), 200, "{path}");
        assert_eq!(ask(&format!("{path}?api-version=2020-01-32")), 400, "{path}");
        assert_eq!(ask(&path), 400, "{path}");
    }
}

#[tokio::test]
async fn reservations_are_read_with_their_usage_and_a_vm_on_one_is_reserved() {
    let lab = lab();
    let region = lab.region.region.clone();
    let id = |name: &str| {
        let group = "/subscriptions/s/resourceGroups/other/providers/Microsoft.Compute/capacityReservationGroups";
        ArmId::new(format!("{group}/{name}")).unwrap()
    };
    let (size, zone, group) = (VmSize::new("Standard_D4s_v5").unwrap(), Zone::of(&region, 2), id("paid"));
    lab.wire.with(|cloud, _| {
        cloud.reserve_vms(&group, &size, &zone, Some(3));
        cloud.reserve_vms(&group, &size, &Zone::regional(), Some(1));
        cloud.limits.regional = Some(0);
    });
    let capacities = |found: Vec<CapacityReservation>| -> Vec<(String, u64, u64)> {
        found.into_iter().map(|room| (room.zone.to_string(), room.used, room.capacity)).collect()
    };
    let found = lab.azure.reservations(&id("PAID"), &region).await.unwrap();
    assert_eq!(capacities(found), [("0".to_owned(), 0, 1), ("westeurope-2".to_owned(), 0, 3)]);

    let (vm, nic, os_disk) =
        lab.wire.with(|cloud, _| (cloud.vm_id("aks-a"), cloud.nic_id("aks-a"), cloud.disk_id("aks-a")));
    let offering = OfferingKey { size: size.clone(), zone: zone.clone(), capacity_type: CapacityType::Reserved };
    let nic_spec = NicSpec { id: nic.clone(), tags: Tags::new(), accelerated: true, subnet: None, create_only: true };
    let spec = |group: &ArmId| VmSpec {
        id: vm.clone(),
        offering: offering.clone(),
        nic: nic.clone(),
        os_disk: os_disk.clone(),
        os_disk_gb: 64,
        tags: Tags::new(),
        claim: ClaimName::new("a").unwrap(),
        kubelet: KubeletSpec::default(),
        os_disk_storage: OsDiskStorage::Premium,
        security: Default::default(),
        capacity_reservation_group: Some(group.clone()),
        create_only: true,
    };
    lab.azure.perform(&CloudRequest::PutNic(Box::new(nic_spec))).await.unwrap();
    for unknown in [id("gone"), ArmId::new(id("paid").as_str().replace("/other/", "/another/")).unwrap()] {
        let refused = lab.azure.perform(&CloudRequest::PutVm(Box::new(spec(&unknown)))).await.unwrap_err();
        assert_eq!(refused.category(), "reservation", "{refused}");
    }
    lab.wire.set_now(lab.now + SignedDuration::from_mins(5));
    let put = lab.azure.perform(&CloudRequest::PutVm(Box::new(spec(&group)))).await;
    assert!(matches!(put, Ok(Reply::Accepted(_))), "it takes no quota: {put:?}");
    let found = lab.azure.reservations(&group, &region).await.unwrap();
    assert_eq!(capacities(found), [("0".to_owned(), 0, 1), ("westeurope-2".to_owned(), 1, 3)]);
    let Ok(Reply::Resource(Some(read))) = lab.azure.perform(&CloudRequest::Get(vm.clone())).await else {
        panic!("no VM")
    };
    let ResourceDetail::Vm(read) = &read.detail else { panic!("{read:?}") };
    assert_eq!((read.capacity_type, &read.size), (CapacityType::Reserved, &size));

    let missing = lab.azure.reservations(&id("gone"), &region).await.unwrap_err();
    assert!(!missing.code.is_transient(), "it does not hide the groups that are there: {missing}");
    let elsewhere = Region::new("northeurope").unwrap();
    assert!(lab.azure.reservations(&group, &elsewhere).await.unwrap_err().message.contains("nodes are created in"));
}
