//! burn's remote devices, over a websocket on loopback: the server is a process of its own.

use std::{io::Read as _, time::Duration};

use burn::{
    server::{RemoteServer, WebSocketTransport},
    tensor::Device,
};
use burn_init::{ErrorKind, Growth, ModuleInit as _};

use crate::{
    device::open,
    process::{Process, say},
    training::{check_step_zero, check_training},
    values::check_precisions,
    zoo::{assert_same_bits, bits, transformer, zoo},
};

const ADDRESS: &str = "address ";

/// Serves three devices until its standard input ends.
#[test]
#[ignore = "a process of the tests below"]
fn server() {
    std::thread::spawn(|| {
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        std::process::exit(0);
    });
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    say(ADDRESS, listener.local_addr().unwrap());
    let devices = [Device::flex(), Device::flex(), Device::flex()];
    RemoteServer::new(devices).serve(WebSocketTransport::from_listener(listener)).unwrap();
}

fn serve() -> (Process, String) {
    let mut server = Process::start("remote::server", &[]);
    let address = format!("ws://{}", server.answer(ADDRESS));
    (server, address)
}

/// What holds for a device here holds for one behind a websocket.
#[test]
fn a_remote_device_is_a_device() {
    let (_server, address) = serve();
    let remote = open(&address).unwrap();
    check_precisions(&remote);
    check_step_zero(&remote);
    check_training(&remote);
}

/// Replicas on the devices of two servers start themselves, each from the seed.
#[test]
fn replicas() {
    let (servers, addresses): (Vec<_>, Vec<_>) = (0..2).map(|_| serve()).unzip();
    let expected = bits(&transformer().init(&Device::flex()).unwrap());
    for address in &addresses {
        for index in 0..3 {
            let device = open(&format!("{address}#{index}")).unwrap();
            assert_same_bits(&bits(&transformer().init(&device).unwrap()), &expected);
        }
    }
    let error = open(&format!("{}#3", addresses[0])).unwrap_err();
    assert!(error.contains("hosts only 3 device"), "{error}");
    drop(servers);
}

/// A lost server is an error and not a hang, before a start, during a use and on a start over.
#[test]
fn a_lost_server() {
    Process::start("remote::loses_its_server", &[]).succeeds(Duration::from_secs(120));
}

#[test]
#[ignore = "a process of the test above"]
fn loses_its_server() {
    let (server, address) = serve();
    let device = open(&address).unwrap();
    let config = transformer();
    let model = config.init(&device).unwrap();
    let plan = model.plan(&config.scheme).unwrap();
    plan.audit(&model).unwrap().assert_started();

    drop(server);
    let failures = [
        plan.whole("head.weight", 1).unwrap().tensor::<2>(&device).map(drop).unwrap_err(),
        Growth::vocabulary(64).drawn_by(&config.scheme).grow(model.clone(), 1).map(drop).unwrap_err(),
        zoo(None, 1, &device).map(drop).unwrap_err(),
        zoo(Some(burn_init::Dtype::F16), 1, &device).map(drop).unwrap_err(),
        plan.audit(&model).map(drop).unwrap_err(),
        model.initialize(&config.scheme, 1).map(drop).unwrap_err(),
        config.init(&device).map(drop).unwrap_err(),
    ];
    for failure in failures {
        println!("{failure}");
        assert_eq!(failure.kind(), ErrorKind::Device, "{failure}");
    }
}

/// burn tries for a quarter of a minute.
#[test]
fn no_server() {
    // Bound but not listening for websockets, and closed at once: nothing answers there.
    let address = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let error = open(&format!("ws://{address}")).unwrap_err();
    assert!(error.starts_with(&format!("there is no device at ws://{address}: ")), "{error}");
}
