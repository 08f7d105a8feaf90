//! Sorters by name: which policy shares, and what its parameters change.

use module_api::Parameters;
use protocol::Capability;
use runtime::rehearsal::rehearse;

use crate::cluster::{Cluster, lines};

/// Who names a sorter that there is not, or a parameter that it has not, is told what there is.
#[test]
fn an_unknown_sorter_or_parameter_is_answered_with_those_there_are() {
    rehearse(|node| async move {
        let start = |given: Parameters| {
            let started = modules::registry().sorter(&node, given.module(), &given);
            started.err().map(|error| error.to_string())
        };
        assert_eq!(
            start(Parameters::none("fair")).as_deref(),
            Some("there is no sorter called `fair`: expected one of drf")
        );
        assert_eq!(
            start(Parameters::none("drf").with("seed", "7")).as_deref(),
            Some(
                "module `drf`, parameter `seed` is given: expected only fair_sharing_excluded_resource_names"
            )
        );
        let nonsense =
            Parameters::none("drf").with("fair_sharing_excluded_resource_names", "gpus,a b");
        assert_eq!(
            start(nonsense).as_deref(),
            Some(
                "module `drf`, parameter `fair_sharing_excluded_resource_names` is `gpus,a b`: expected names of resources such as `gpus,disk`"
            )
        );
    });
}

/// SPEC 4.10 (DRFWithFairnessExclusion): all graphics processors of the cluster are no share if they are excluded.
#[test]
fn what_is_excluded_from_fairness_does_not_raise_a_share() {
    for (excluded, next) in [("", "poor"), ("gpus", "rich")] {
        rehearse(|node| async move {
            let given =
                Parameters::none("drf").with("fair_sharing_excluded_resource_names", excluded);
            let cluster = Cluster::sorted_by(&node, &given, &[]);
            cluster.framework("rich", "a", &[Capability::GpuResources]);
            cluster.agent("a1", "cpus:1;mem:100;gpus:1");
            assert_eq!(lines(&cluster.granted().await).len(), 1);
            cluster.framework("poor", "b", &[]);
            cluster.agent("a2", "cpus:2;mem:200");
            assert_eq!(lines(&cluster.granted().await), ["poor a2 cpus:2;mem:200"]);
            cluster.agent("a3", "cpus:1;mem:100");
            let given = lines(&cluster.granted().await);
            assert_eq!(
                given,
                [format!("{next} a3 cpus:1;mem:100")],
                "excluded: {excluded}"
            );
        });
    }
}
