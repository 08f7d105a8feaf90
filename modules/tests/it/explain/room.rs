//! Explanations while tasks are revoked for a guarantee.

use super::*;

/// Where tasks are revoked, only reserved resources are shared, and the reason is given.
#[test]
fn explanation_names_revocation_for_another_role() {
    let mut scene = Scene::agents(&[("a1", "cpus:2;mem:64;cpus(ads):2;mem(ads):64")]);
    for role in ["batch", "ads"] {
        scene.framework(role, role, &[]);
    }
    scene.quota("web", "cpus:1", "");
    let slot = scene.state.slot_of(&agent("a1")).unwrap();
    let web = Role::new("web").unwrap();
    scene.state.keep(BTreeMap::from([(slot, web)]));
    let kept = ["1 tasks are being revoked for role web"];
    scene.says("batch", "batch", &kept);
    assert_eq!(scene.grant(Stage::Fair, "batch", "batch", "a1"), None);
    let open = [OPEN];
    scene.says("ads", "ads", &open);
    let granted = scene.grant(Stage::Fair, "ads", "ads", "a1");
    assert_eq!(granted.as_deref(), Some("cpus(ads):2;mem(ads):64"));
    scene.says("ads", "ads", &kept);
    // A new registration changes nothing.
    let total = "cpus:3;mem:64;cpus(ads):2;mem(ads):64";
    scene.state.agent_added(added("a1", total, vec![]));
    scene.says("batch", "batch", &kept);
    scene.state.keep(BTreeMap::new());
    scene.says("batch", "batch", &open);
}
