//! Nodes with certificates of another authority, some of them revoked.

use super::*;
use crate::foreign::ForeignAuthority;

#[test]
fn nodes_of_a_foreign_authority_link_until_they_are_revoked() {
    run_in_real_time(async {
        let company = ForeignAuthority::new("company");
        let member = |identity: &Identity| Member::showing(identity, quick(), LOCALHOST);
        let master_identity = company.identity(Role::Master, "master-1", 1);
        let master = member(&master_identity);
        let first = member(&company.identity(Role::Agent, "agent-1", 2));
        first.find_noter(&master).await;

        let revoking = master_identity.revoking(company.revocations(&[3]));
        master.endpoint.renew(&revoking).unwrap();
        let revoked = member(&company.identity(Role::Agent, "agent-2", 3));
        let error = revoked.node.connect(&master.address()).await.unwrap_err();
        assert!(matches!(error, ConnectError::Refused { .. }), "{error:?}");
        let other = member(&company.identity(Role::Agent, "agent-3", 4));
        other.find_noter(&master).await;

        // The dialling side checks revocations too.
        let wary = company.identity(Role::Agent, "agent-4", 5);
        let wary = member(&wary.revoking(company.revocations(&[1])));
        assert!(wary.node.connect(&master.address()).await.is_err());
        assert_eq!(master.endpoint.links(), 2);
    });
}
