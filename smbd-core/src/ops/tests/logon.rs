//! SESSION_SETUP with wrong passwords.

use std::time::Duration;

use crate::auth::ntlm::Credentials;
use crate::auth::{Account, Fresh, Initiator, NtHash};
use crate::kit::{Client, Kit};
use crate::limits::{GUESS_DELAY, GUESSES_FREE};
use crate::status::Status;
use crate::wire::Command;
use crate::wire::session_setup::{Request, Response};

/// One logon of somebody whom the server does not know.
async fn guess(client: &mut Client) -> Status {
    let credentials = Credentials {
        account: Account {
            user: "mallory".into(),
            domain: String::new(),
            workstation: String::new(),
        },
        hash: NtHash::of("guess"),
        target_name: "cifs/gate".into(),
    };
    let mut initiator =
        Initiator::new(credentials, Fresh { challenge: [1; 8], key: [2; 16], time: 0 });
    (client.session_id, client.tree_id) = (0, 0);
    let ask = |token: &[u8]| Request { security_mode: 1, token, ..Request::default() }.emit();
    let first = client.ask(Command::SessionSetup, &ask(&initiator.first())).await;
    assert_eq!(first.status(), Status::MORE_PROCESSING_REQUIRED);
    client.session_id = first.header.session_id;
    let challenge = Response::parse(&first.message).unwrap().token.to_vec();
    let (answer, _) = initiator.second(&challenge).unwrap();
    client.ask(Command::SessionSetup, &ask(&answer)).await.status()
}

#[tokio::test(start_paused = true)]
async fn ten_wrong_passwords_in_a_minute_slow_the_next() {
    let kit = Kit::new();
    let mut client = kit.client();
    let begun = tokio::time::Instant::now();
    for _ in 0..GUESSES_FREE {
        assert_eq!(guess(&mut client).await, Status::LOGON_FAILURE);
    }
    assert_eq!(begun.elapsed(), Duration::ZERO);
    assert_eq!(guess(&mut client).await, Status::LOGON_FAILURE);
    assert!(begun.elapsed() >= GUESS_DELAY, "both messages waited");
    let slowed = rdma_transport::count::broken_rules();
    assert!(slowed.iter().any(|(rule, n)| *rule == "smb-logon-slowed" && *n >= 2));
}
