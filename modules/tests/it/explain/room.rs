//! Explanations where tasks make room for what is guaranteed.

use super::*;

/// Where tasks make room, only what is reserved is shared, and who waits is told so.
#[test]
fn who_waits_where_tasks_make_room_is_told_for_whom_and_who_has_a_reservation_is_not() {
    let mut scene = Scene::agents(&[("a1", "cpus:2;mem:64;cpus(ads):2;mem(ads):64")]);
    for role in ["batch", "ads"] {
        scene.framework(role, role, &[]);
    }
    scene.quota("web", "cpus:1", "");
    let slot = scene.books.slot_of(&agent("a1")).unwrap();
    let web = Role::new("web").unwrap();
    scene.books.keep(BTreeMap::from([(slot, web)]));
    let kept = ["1 tasks make room there for role web"];
    scene.says("batch", "batch", &kept);
    assert_eq!(scene.grant(Stage::Fair, "batch", "batch", "a1"), None);
    let open = [OPEN];
    scene.says("ads", "ads", &open);
    let granted = scene.grant(Stage::Fair, "ads", "ads", "a1");
    assert_eq!(granted.as_deref(), Some("cpus(ads):2;mem(ads):64"));
    scene.says("ads", "ads", &kept);
    // Told anew, it is kept as before.
    let total = "cpus:3;mem:64;cpus(ads):2;mem(ads):64";
    scene.books.agent_added(added("a1", total, vec![]));
    scene.says("batch", "batch", &kept);
    scene.books.keep(BTreeMap::new());
    scene.says("batch", "batch", &open);
}
