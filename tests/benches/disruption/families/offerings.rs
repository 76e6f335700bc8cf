//! Families whose nodes are more than on demand.

use crate::world::{WorldBuilder, minutes, pool_with};
use anyhow::Result;
use napkeeper_core::catalog::CapacityType;
use napkeeper_core::model::cluster::pod::{PodShape, Taint, TaintEffect, Toleration};
use napkeeper_core::model::labels;
use napkeeper_core::model::names::{ArmId, VmSize, Zone};
use napkeeper_core::model::requirements::Operator;
use napkeeper_sim::world::{Action, ShortageSpec};
use napkeeper_tests::fixtures;
use std::sync::Arc;

/// The resource of GPUs, and the key of their taint.
const GPU: &str = "nvidia.com/gpu";
/// The group of capacity reservations.
const GROUP: &str = "/subscriptions/00000000-0000-4000-8000-000000000001/resourceGroups/capacity/providers/\
    Microsoft.Compute/capacityReservationGroups/paid";

/// Spot nodes, on demand only as a fallback. Three times a day Azure takes many back and has none left in a zone.
pub(super) fn spot_storms(builder: &mut WorldBuilder) -> Result<()> {
    builder.pool("spot", 10, &["spot"])?;
    builder.pool("on-demand", 1, &["on-demand"])?;
    let loads = builder.deployments(20)?;
    builder.follow_the_day(&loads, minutes(60), 3);
    let region = builder.world.setup.region.clone();
    for storm in 0..3 * builder.days() {
        let after = builder.minute_of_day(storm / 3);
        let count = usize::try_from(builder.between(5, 20))?;
        let zone = Zone::of(&region, u8::try_from(builder.between(1, 3))?);
        let duration = Some(minutes(i64::from(builder.between(30, 120))));
        let capacity_type = Some(CapacityType::Spot);
        let shortage = ShortageSpec { size: None, zone: Some(zone), capacity_type, duration };
        builder.at(after, Action::EvictSpot { count });
        builder.at(after, Action::Refuse(shortage));
    }
    Ok(())
}

/// Services on GPUs beside a load of which a part fits on reserved VMs.
pub(super) fn gpu_and_reserved(builder: &mut WorldBuilder) -> Result<()> {
    let group = ArmId::new(GROUP)?;
    for class in &mut builder.world.setup.manifests.classes {
        class.reservations = Some(group.clone());
    }
    builder.pool("general", 0, &["reserved", "on-demand"])?;
    let region = builder.world.setup.region.clone();
    for zone in 1..=2 {
        let zone = Some(Zone::of(&region, zone));
        let capacity = Some(u64::from(builder.between(4, 8)));
        let size = VmSize::new("Standard_D8s_v5")?;
        builder.at(minutes(0), Action::Reserve { group: group.clone(), size, zone, capacity });
    }
    let mut pool = pool_with("gpu", &["on-demand"])?;
    let sizes = ["Standard_NC4as_T4_v3", "Standard_NC8as_T4_v3", "Standard_NC16as_T4_v3"];
    pool.requirements.add_entry(labels::INSTANCE_TYPE, Operator::In, &sizes)?;
    pool.taints = vec![Taint { key: Arc::from(GPU), value: Arc::from("true"), effect: TaintEffect::NoSchedule }];
    builder.world.setup.manifests.pools.push(pool);
    let mut loads = builder.deployments(16)?;
    for i in 0..3 {
        let name = format!("gpu-{i}");
        let cpu = i64::from(builder.between(1, 3)) * 1_000;
        let mut shape = PodShape::clone(&fixtures::shape(&name, cpu, 4 * cpu, false));
        shape.requests.set_extended(GPU, 1);
        shape.tolerations.push(Toleration { key: Some(Arc::from(GPU)), value: None, effect: None });
        let replicas = builder.between(3, 8);
        loads.push(builder.deployment(&name, Arc::new(shape), replicas)?);
    }
    builder.follow_the_day(&loads, minutes(30), 3);
    Ok(())
}
