use super::*;

fn addresses(hosts: &[&str]) -> Vec<SocketAddr> {
    hosts.iter().map(|host| SocketAddr::new(host.parse().unwrap(), 9)).collect()
}

#[test]
fn families_take_turns_in_the_order_of_the_system() {
    for (given, expected) in [
        (&[][..], &[][..]),
        (&["::1"], &["::1"]),
        (&["127.0.0.1", "127.0.0.2", "::1"], &["127.0.0.1", "::1", "127.0.0.2"]),
        (&["::1", "::2", "::3", "127.0.0.1"], &["::1", "127.0.0.1", "::2", "::3"]),
        (&["::1", "127.0.0.1", "127.0.0.2", "::2"], &["::1", "127.0.0.1", "::2", "127.0.0.2"]),
    ] {
        assert_eq!(interleaved(&addresses(given)), addresses(expected), "{given:?}");
    }
}

#[test]
fn the_next_address_is_due_after_its_time_or_a_failure() {
    let now = Instant::now();
    let order = addresses(&["127.0.0.1", "::1", "127.0.0.2", "127.0.0.3"]);
    let mut schedule = Schedule::new(&order, now);
    assert_eq!((schedule.take(now), schedule.take(now)), (Some(order[0]), None));
    let later = now + HEAD_START;
    assert_eq!((schedule.due(), schedule.take(now + HEAD_START / 2)), (Some(later), None));
    assert_eq!((schedule.take(later), schedule.take(later)), (Some(order[1]), None));
    schedule.failed(later);
    assert_eq!((schedule.due(), schedule.take(later)), (Some(later), Some(order[2])));
    // A failure a while later starts one attempt, whose head start counts from then.
    let soon = later + HEAD_START / 2;
    schedule.failed(soon);
    assert_eq!((schedule.take(soon), schedule.due()), (Some(order[3]), None));
    assert_eq!(schedule.take(soon + HEAD_START), None);
}

fn refused() -> io::Error {
    io::ErrorKind::ConnectionRefused.into()
}

#[tokio::test]
async fn the_first_answer_wins_and_the_losers_are_dropped() {
    let order = addresses(&["127.0.0.1", "127.0.0.2", "127.0.0.3", "127.0.0.4"]);
    let alive = std::sync::Arc::new(());
    let connect = |address: SocketAddr| {
        let held = alive.clone();
        let place = order.iter().position(|known| *known == address).unwrap();
        async move {
            match place {
                0 => std::future::pending::<()>().await,
                1 => return Err(refused()),
                _ => {}
            }
            drop(held);
            Ok(address)
        }
    };
    let began = Instant::now();
    let won = race(&order, Box::pin(tokio::time::sleep(HEAD_START)), connect).await;
    // The second was tried after the first one's head start, and the third as soon as that had failed.
    assert_eq!(won.unwrap(), order[2]);
    assert!(began.elapsed() >= HEAD_START);
    assert_eq!(std::sync::Arc::strong_count(&alive), 1);
}

#[tokio::test]
async fn a_socket_that_does_not_answer_holds_nobody_up() {
    use tokio::net::{TcpListener, TcpSocket};
    let live = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let live = live.local_addr().unwrap();
    // A queue that is full gives no answer, not even a refusal.
    let hole = TcpSocket::new_v4().unwrap();
    hole.bind("127.0.0.2:0".parse().unwrap()).unwrap();
    let hole = hole.listen(1).unwrap();
    let silent = hole.local_addr().unwrap();
    let filling: Vec<_> = (0..4).map(|_| tokio::spawn(TcpStream::connect(silent))).collect();
    for _ in 0..10_000 {
        if filling.iter().filter(|one| one.is_finished()).count() == 2 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let refusing = TcpListener::bind("127.0.0.3:0").await.unwrap().local_addr().unwrap();

    let patience = Duration::from_secs(60);
    for (order, least) in [([refusing, live], Duration::ZERO), ([silent, live], HEAD_START)] {
        let began = Instant::now();
        let (_, address) = tokio::time::timeout(patience, dial(&order)).await.unwrap().unwrap();
        assert_eq!(address, live);
        assert!(began.elapsed() >= least);
    }
    let told = dial(&[refusing, refusing]).await.unwrap_err().to_string();
    assert_eq!(told.matches("127.0.0.3").count(), 2, "{told}");
    filling.iter().for_each(tokio::task::JoinHandle::abort);
}

#[tokio::test]
async fn when_all_fail_each_is_named_up_to_a_bound() {
    let order = addresses(&["127.0.0.1", "::1", "127.0.0.2", "127.0.0.3", "127.0.0.4", "127.0.0.5"]);
    let alarm = || Box::pin(tokio::time::sleep(HEAD_START));
    let failed = |addresses: Vec<SocketAddr>| async move {
        race(&addresses, alarm(), |_| async { Err::<(), _>(refused()) }).await.unwrap_err().to_string()
    };
    assert_eq!(failed(order[..1].to_vec()).await, "connection refused");
    assert_eq!(failed(order[..2].to_vec()).await, "127.0.0.1:9: connection refused, [::1]:9: connection refused");
    let six = failed(order.clone()).await;
    assert!(six.ends_with("127.0.0.3:9: connection refused, and 2 more"), "{six}");
}
