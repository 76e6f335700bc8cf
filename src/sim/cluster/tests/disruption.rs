//! Evictions and rollouts as they are measured.

use super::*;
use crate::measures::PodFigures;
use crate::workload::Rollout;
use napkeeper_core::model::cluster::pod::PodPhase;

fn figures(cluster: &Cluster, now: i64) -> PodFigures {
    cluster.measures().figures(at(now)).all
}

fn evict(cluster: &mut Cluster, pod: &Pod, now: i64) {
    perform(cluster, ClusterWrite::Evict(pod.key.clone(), pod.uid.clone()), at(now)).unwrap();
}

/// Three pods of 1 core that run on a node of 16 cores.
fn three_pods() -> Cluster {
    let mut cluster = cluster();
    cluster.add_unmanaged_node(machine("a", 16, 1), at(0));
    cluster.apply_workload(key("web"), deployment(shape("web", 1000), 3), at(0));
    cluster.advance(at(10));
    cluster
}

#[test]
fn an_accepted_eviction_is_measured_until_the_replacement_runs() {
    let mut cluster = three_pods();
    cluster.set_disruption_reason(&NodeName::new("a").unwrap(), "empty");
    let pod = pods_of(&cluster, "web")[0].clone();
    evict(&mut cluster, &pod, 10);
    cluster.advance(at(20));
    let now = figures(&cluster, 20);
    assert_eq!((now.voluntary_evictions, now.evictions_by_reason.get("empty")), (1, Some(&1)));
    assert_eq!((now.pending_new.pods, now.pending_evicted.pods), (3, 1));
    let started = pods_of(&cluster, "web").iter().filter_map(|pod| pod.started_at).max().unwrap();
    assert_eq!(now.unavailable_pod_seconds, started.duration_since(at(10)).as_secs());
    assert_eq!(figures(&cluster, 500).unavailable_pod_seconds, now.unavailable_pod_seconds, "it runs");
    evict(&mut cluster, &pod, 20);
    assert_eq!(figures(&cluster, 20).voluntary_evictions, 1, "it is being deleted already");
}

#[test]
fn scaling_and_lost_machines_evict_nothing() {
    let mut cluster = three_pods();
    cluster.scale(&key("web"), 2, at(10));
    cluster.advance(at(50));
    cluster.kubelet_lost(&ProviderId::of_vm(&vm("a")), at(50));
    let pod = pods_of(&cluster, "web")[0].clone();
    evict(&mut cluster, &pod, 51);
    cluster.advance(at(600));
    let now = figures(&cluster, 600);
    assert_eq!((now.voluntary_evictions, now.unavailable_pod_seconds), (0, 0));
    assert_eq!(
        (now.pending_new.pods, now.pending_new.never_bound),
        (6, 2),
        "one more was bound to the lost node; two wait"
    );
}

#[test]
fn pods_that_run_on_when_the_policy_deletes_their_vm_are_evicted() {
    let mut cluster = three_pods();
    let pod = pods_of(&cluster, "web")[0].clone();
    evict(&mut cluster, &pod, 10);
    cluster.vm_deleted_by_policy(&NodeName::new("a").unwrap(), at(11));
    cluster.delete_node(&NodeName::new("a").unwrap(), at(11));
    cluster.add_unmanaged_node(machine("b", 16, 1), at(11));
    cluster.advance(at(60));
    let now = figures(&cluster, 60);
    assert_eq!(now.voluntary_evictions, 3, "one by an eviction, and two that still ran");
    assert_eq!((now.pending_new.pods, now.pending_evicted.pods), (3, 3));
}

#[test]
fn a_pod_deleted_past_all_budgets_is_an_eviction_too() {
    let mut cluster = three_pods();
    let pod = pods_of(&cluster, "web")[0].clone();
    cluster.delete_pod_by_policy(&pod.key, &pod.uid, at(10)).unwrap();
    assert_eq!(figures(&cluster, 10).voluntary_evictions, 1);
    let other = Uid::new("other").unwrap();
    assert_eq!(cluster.delete_pod_by_policy(&pod.key, &other, at(10)), Err(ClusterError::Conflict));
}

fn requests(cpu_millis: i64) -> Resources {
    Resources { pods: 1, ..Resources::cpu_memory(cpu_millis, GIB) }
}

/// How many pods run with these requests, and how many exist, but for those being deleted.
fn running(cluster: &Cluster, cpu_millis: i64) -> (usize, usize) {
    let of_size = |pod: &&Arc<Pod>| pod.deleting_at.is_none() && pod.shape.requests.cpu_millis == cpu_millis;
    let pods = pods_of(cluster, "web");
    let runs = |pod: &&Arc<Pod>| of_size(pod) && pod.phase == PodPhase::Running;
    (pods.iter().filter(runs).count(), pods.iter().filter(of_size).count())
}

#[test]
fn a_rollout_replaces_all_pods_and_never_has_fewer_than_it_may() {
    let mut cluster = three_pods();
    let rollout = Rollout { requests: Some(requests(2000)), max_surge: 1, max_unavailable: 0 };
    cluster.roll_out(&key("web"), rollout, at(10));
    for now in 10..60 {
        cluster.advance(at(now));
        let ((old, old_all), (new, new_all)) = (running(&cluster, 1000), running(&cluster, 2000));
        assert!(old + new >= 3, "{old} and {new} at {now}");
        assert!(old_all + new_all <= 4, "{old_all} and {new_all} at {now}");
    }
    assert_eq!((running(&cluster, 1000), running(&cluster, 2000)), ((0, 0), (3, 3)));
    let now = figures(&cluster, 60);
    assert_eq!((now.voluntary_evictions, now.pending_new.pods), (0, 6));
    cluster.scale(&key("web"), 4, at(100));
    cluster.advance(at(110));
    assert_eq!(running(&cluster, 2000), (4, 4), "the new template stays");
}

#[test]
fn a_rollout_waits_for_room_and_goes_on_where_pods_may_be_missing() {
    let mut full = cluster();
    full.add_unmanaged_node(machine("a", 3, 1), at(0));
    full.apply_workload(key("web"), deployment(shape("web", 1000), 3), at(0));
    full.advance(at(10));
    full.roll_out(&key("web"), Rollout { requests: Some(requests(900)), max_surge: 1, max_unavailable: 0 }, at(10));
    full.advance(at(300));
    assert_eq!((running(&full, 1000), running(&full, 900)), ((3, 3), (0, 1)));
    full.roll_out(&key("web"), Rollout { requests: Some(requests(800)), max_surge: 0, max_unavailable: 1 }, at(300));
    full.advance(at(900));
    assert_eq!((running(&full, 1000), running(&full, 900), running(&full, 800)), ((0, 0), (0, 0), (3, 3)));
}
