//! Renewal: open links continue, new handshakes use the new identity, and an invalid one changes
//! nothing.

use super::*;

fn agent_of(authority: &Authority, name: &str) -> Member {
    Member::new(authority, name, Role::Agent)
}

#[test]
fn renewal_keeps_links_and_shows_the_new_certificate() {
    run_in_real_time(async {
        let (old, new) = (Authority::create().unwrap(), Authority::create().unwrap());
        let master = Member::new(&old, "master-1", Role::Master);
        let before = agent_of(&old, "agent-1");
        let noter = before.find_noter(&master).await;
        before.noter.tell(Watch(noter.clone())).unwrap();

        let renewed = new.issue(Role::Master, "master-1").unwrap();
        master.endpoint.renewal().renew(&renewed).unwrap();
        let after = agent_of(&new, "agent-2");
        after.find_noter(&master).await;
        let late = agent_of(&old, "agent-3");
        let error = late.node.connect(&master.address()).await.unwrap_err();
        assert!(matches!(error, ConnectError::Refused { .. }), "{error:?}");

        before.check_answer(&noter).await;
        assert_eq!((before.notes.len(), master.endpoint.links()), (0, 2));
    });
}

#[test]
fn renewed_endpoint_dials_with_the_new_certificate() {
    run_in_real_time(async {
        let (old, new) = (Authority::create().unwrap(), Authority::create().unwrap());
        let (first, second) = (
            Member::new(&old, "master-1", Role::Master),
            Member::new(&new, "master-2", Role::Master),
        );
        let agent = agent_of(&old, "agent-1");
        agent.find_noter(&first).await;
        assert!(agent.node.connect(&second.address()).await.is_err());
        let renewed = new.issue(Role::Agent, "agent-1").unwrap();
        agent.endpoint.renew(&renewed).unwrap();
        agent.find_noter(&second).await;
        assert_eq!(agent.endpoint.links(), 2);
    });
}

#[test]
fn unusable_identity_is_an_error_and_changes_nothing() {
    run_in_real_time(async {
        let authority = Authority::create().unwrap();
        let (master, agent) = (
            Member::new(&authority, "master-1", Role::Master),
            agent_of(&authority, "agent-1"),
        );
        let issue = |role, name| authority.issue(role, name).unwrap();
        let refused = |identity: &Identity| {
            let error = master.endpoint.renew(identity).unwrap_err();
            error.to_string()
        };
        let error = refused(&issue(Role::Master, "master-2"));
        assert_contains!(error, "expected meros://master/master-1");
        let error = refused(&issue(Role::Agent, "master-1"));
        assert_contains!(error, "expected meros://master/master-1");
        let sixty_years = 60 * 365 * 24 * 3600 * 1_000_000_000_i64;
        master.node.clock().set_wall_offset(-sixty_years);
        let error = refused(&issue(Role::Master, "master-1"));
        assert!(error.contains("is not valid now"), "{error}");
        master.node.clock().set_wall_offset(0);
        agent.find_noter(&master).await;
    });
}

#[test]
fn an_endpoint_that_is_gone_is_not_renewed() {
    run_in_real_time(async {
        let authority = Authority::create().unwrap();
        let master = Member::new(&authority, "master-1", Role::Master);
        let (renewal, identity) = (
            master.endpoint.renewal(),
            authority.issue(Role::Master, "master-1").unwrap(),
        );
        master.endpoint.shared.state().closing = true;
        assert!(matches!(renewal.renew(&identity), Err(RenewError::Closed)));
        master.node.shutdown().await;
        master.endpoint.close().await;
        assert!(matches!(renewal.renew(&identity), Err(RenewError::Closed)));
    });
}
