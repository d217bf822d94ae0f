//! Sessions of a public key infrastructure: servers and clients with certificates of an authority.

use std::fs::{self, Permissions};
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::session_support::{self, Client, Server, message};
use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, CertifiedIssuer, DnType,
    IsCa, KeyIdMethod, KeyPair, KeyUsagePurpose, RevocationReason, RevokedCertParams, SerialNumber,
    date_time_ymd,
};
use tempfile::TempDir;
use umbel_net::session::{
    Authorities, ClientError, ClientEvent, ConnectOptions, Credentials, Host, Identity,
    IdentityError, NotAdmitted, Pin, ServerOptions, SessionEvent, SessionUrl,
};

/// The files of an authority.
struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
    dir: TempDir,
}

impl Authority {
    fn new(name: &str) -> Authority {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("ca.pem"), issuer.pem()).unwrap();
        Authority { issuer, dir }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Signs a certificate for a name or address, which `change` may change before.
    fn sign(&self, name: &str, change: impl FnOnce(&mut CertificateParams)) -> Arc<Identity> {
        let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        change(&mut params);
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        Arc::new(Identity::from_pem(&certificate.pem(), &key.serialize_pem()).unwrap())
    }

    /// Returns the authority, with a list that revokes the certificate of this number.
    fn with_revoked(&self, serial: u64) -> Arc<Authorities> {
        let revoked = RevokedCertParams {
            serial_number: SerialNumber::from(serial),
            revocation_time: date_time_ymd(2026, 1, 1),
            reason_code: Some(RevocationReason::KeyCompromise),
            invalidity_date: None,
        };
        let list = CertificateRevocationListParams {
            this_update: date_time_ymd(2026, 1, 1),
            next_update: date_time_ymd(2126, 1, 1),
            crl_number: SerialNumber::from(1),
            issuing_distribution_point: None,
            revoked_certs: vec![revoked],
            key_identifier_method: KeyIdMethod::Sha256,
        };
        let list = list.signed_by(&self.issuer).unwrap();
        fs::write(self.path("crl.pem"), list.pem().unwrap()).unwrap();
        let lists = self.path("crl.pem");
        Arc::new(Authorities::load(&self.path("ca.pem"), Some(&lists)).unwrap())
    }

    fn trusted(&self) -> Arc<Authorities> {
        Arc::new(Authorities::load(&self.path("ca.pem"), None).unwrap())
    }
}

fn serve(identity: &Identity, clients: Option<Arc<Authorities>>) -> Server {
    let address = "127.0.0.1:0".parse().unwrap();
    Server::start_as(identity, address, ServerOptions { clients, ..ServerOptions::default() })
}

fn url(address: SocketAddr, pin: Option<Pin>) -> SessionUrl {
    SessionUrl { host: Host::Ip(address.ip()), port: address.port(), pin, token: None }
}

fn options(
    authorities: Option<Arc<Authorities>>,
    identity: Option<Arc<Identity>>,
) -> ConnectOptions {
    let credentials = Credentials { authorities, identity };
    ConnectOptions { credentials, ..ConnectOptions::default() }
}

/// Returns why a client gets no session, or loses it at once.
fn refusal(url: &SessionUrl, options: &ConnectOptions) -> ClientError {
    let client = Client::start(url, options);
    loop {
        if let ClientEvent::Disconnected { reason, retryable } = client.next() {
            assert!(!retryable, "{reason}");
            assert!(!reason.to_string().contains('\n'), "{reason}");
            return reason;
        }
    }
}

fn assert_served(server: &Server, url: &SessionUrl, options: &ConnectOptions) {
    let client = Client::connect(url, options).unwrap();
    client.session.send(message(1, 5)).unwrap();
    let id = loop {
        match server.next() {
            SessionEvent::Opened { id, .. } => break id,
            SessionEvent::Closed { .. } | SessionEvent::Rejected { .. } => {}
            other @ SessionEvent::Message { .. } => panic!("{other:?}"),
        }
    };
    assert_eq!(server.message(), message(1, 5));
    server.handle.send(id, message(2, 5)).unwrap();
    assert_eq!(client.message(), message(2, 5));
}

#[test]
fn a_server_with_a_certificate_needs_no_pin() {
    let authority = Authority::new("lab");
    let server = serve(&authority.sign("127.0.0.1", |_| {}), None);
    let trusting = options(Some(authority.trusted()), None);
    assert_served(&server, &url(server.address, None), &trusting);
    assert_served(&server, &url(server.address, Some(server.pin)), &trusting);
    // A pin counts beside the certificate, not instead of it.
    let other = Pin::from_digest([7; 32]);
    let error = refusal(&url(server.address, Some(other)), &trusting);
    assert_eq!(error, ClientError::WrongPin { expected: other, got: server.pin });
    let nothing = Client::connect(&url(server.address, None), &ConnectOptions::default());
    assert_eq!(nothing.err(), Some(ClientError::NoPin));
}

#[test]
fn a_servers_certificate_that_does_not_do_is_explained() {
    let (authority, other) = (Authority::new("lab"), Authority::new("other"));
    let expect = |identity: &Identity, trusted: Arc<Authorities>, words: &str| {
        let server = serve(identity, None);
        let error = refusal(&url(server.address, None), &options(Some(trusted), None));
        assert!(matches!(error, ClientError::Certificate { .. }), "{error}");
        assert!(error.to_string().contains(words), "{error}");
    };
    let past = |params: &mut CertificateParams| params.not_after = date_time_ymd(2020, 1, 1);
    let future = |params: &mut CertificateParams| params.not_before = date_time_ymd(2100, 1, 1);
    let numbered = |params: &mut CertificateParams| params.serial_number = Some(77.into());
    let address = "127.0.0.1";
    expect(&authority.sign(address, past), authority.trusted(), "days ago: renew it");
    expect(&authority.sign(address, future), authority.trusted(), "this host's clock");
    expect(&authority.sign("192.0.2.1", |_| {}), authority.trusted(), "another host");
    expect(&authority.sign(address, |_| {}), other.trusted(), "no authority of --ca");
    expect(&authority.sign(address, numbered), authority.with_revoked(77), "revoked");
    expect(&session_support::identity(), authority.trusted(), "no authority of --ca");
    let namesake = Authority::new("lab");
    expect(&authority.sign(address, |_| {}), namesake.trusted(), "no authority of --ca");
}

#[test]
fn a_list_that_changes_counts_for_the_next_client() {
    let authority = Authority::new("lab");
    let server = serve(&session_support::identity(), Some(authority.with_revoked(77)));
    let url = url(server.address, Some(server.pin));
    let numbered = |params: &mut CertificateParams| params.serial_number = Some(78.into());
    let shown = options(None, Some(authority.sign("laptop", numbered)));
    let assert_revoked = || {
        let error = refusal(&url, &shown);
        let revoked = matches!(&error, ClientError::NotAdmitted { why: NotAdmitted::Revoked, .. });
        assert!(revoked, "{error}");
    };
    assert_served(&server, &url, &shown);
    let _ = authority.with_revoked(78);
    assert_revoked();
    // An unusable or missing file changes nothing.
    fs::write(authority.path("crl.pem"), "no list").unwrap();
    assert_revoked();
    fs::remove_file(authority.path("crl.pem")).unwrap();
    assert_revoked();
    let _ = authority.with_revoked(77);
    assert_served(&server, &url, &shown);
}

#[test]
fn a_server_with_authorities_admits_their_clients_and_nobody_else() {
    let (authority, other) = (Authority::new("lab"), Authority::new("other"));
    let identity = session_support::identity();
    let server = serve(&identity, Some(authority.with_revoked(77)));
    let url = url(server.address, Some(server.pin));
    assert_served(&server, &url, &options(None, Some(authority.sign("laptop", |_| {}))));

    let refused = |shown: Option<Arc<Identity>>| match refusal(&url, &options(None, shown)) {
        ClientError::NotAdmitted { why, .. } => why,
        error => panic!("{error}"),
    };
    let past = |params: &mut CertificateParams| params.not_after = date_time_ymd(2020, 1, 1);
    let numbered = |params: &mut CertificateParams| params.serial_number = Some(77.into());
    assert_eq!(refused(None), NotAdmitted::NoCertificate);
    assert_eq!(refused(Some(authority.sign("laptop", past))), NotAdmitted::Expired);
    assert_eq!(refused(Some(authority.sign("laptop", numbered))), NotAdmitted::Revoked);
    assert_eq!(refused(Some(other.sign("laptop", |_| {}))), NotAdmitted::UnknownAuthority);
    assert_eq!(refused(Some(Arc::new(session_support::identity()))), NotAdmitted::UnknownAuthority);

    // None of them ever had a session, and the operator hears why.
    let mut reasons = Vec::new();
    while reasons.len() < 5 {
        match server.next() {
            SessionEvent::Rejected { reason, .. } => reasons.push(reason),
            SessionEvent::Closed { .. } => {}
            other => panic!("{other:?}"),
        }
    }
    assert!(reasons.iter().all(|reason| reason.starts_with("its certificate")), "{reasons:?}");
}

#[test]
fn files_that_do_not_do_are_named() {
    let authority = Authority::new("lab");
    let problem = |certificates: &Path, lists: Option<&Path>| {
        let error = Authorities::load(certificates, lists).unwrap_err().to_string();
        assert!(!error.contains('\n'), "{error}");
        error
    };
    let (ca, bad) = (authority.path("ca.pem"), authority.path("bad.pem"));
    assert!(problem(&authority.path("none.pem"), None).contains("none.pem"));
    for text in ["", "no PEM", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"] {
        fs::write(&bad, text).unwrap();
        assert!(problem(&bad, None).contains("bad.pem"));
        assert!(problem(&ca, Some(&bad)).contains("bad.pem"));
    }
    fs::write(&bad, "-----BEGIN X509 CRL-----\nAAAA\n-----END X509 CRL-----\n").unwrap();
    assert!(problem(&ca, Some(&bad)).contains("bad.pem"));
    fs::write(&bad, vec![b'-'; 5 << 20]).unwrap();
    assert!(problem(&bad, None).contains("too long"));
}

#[test]
fn a_key_that_others_can_read_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let key = KeyPair::generate().unwrap();
    let certificate = CertificateParams::new(Vec::new()).unwrap().self_signed(&key).unwrap();
    let (chain, secret) = (dir.path().join("cert.pem"), dir.path().join("key.pem"));
    fs::write(&chain, certificate.pem()).unwrap();
    fs::write(&secret, key.serialize_pem()).unwrap();
    fs::set_permissions(&secret, Permissions::from_mode(0o640)).unwrap();
    let error = Identity::load(&chain, &secret).unwrap_err();
    assert!(matches!(error, IdentityError::KeyExposed { .. }), "{error}");
    fs::set_permissions(&secret, Permissions::from_mode(0o600)).unwrap();
    assert!(Identity::load(&chain, &secret).is_ok());
    assert!(Identity::load(&secret, &secret).is_err(), "it has no certificate in it");
}
