//! Settings: the token and signed links, the default user and directory, variables, and how long they hold.

use std::path::Path;
use std::process::Command;

use connectrpc::ErrorCode;
use connectrpc::client::CallOptions;
use icebox_wire::boxd::ConfigureRequest;
use icebox_wire::filesystem::StatRequest;

use crate::harness::{Boxd, within};
use crate::processes::{start_line, whole};

fn with_token() -> ConfigureRequest {
    ConfigureRequest {
        access_token: "secret".to_owned(),
        ..Default::default()
    }
}

/// As `openssl` makes it.
fn sign(text: &str) -> String {
    let script =
        format!("printf %s '{text}' | openssl dgst -sha256 -binary | base64 | tr -d '=\\n'");
    let made = Command::new("sh")
        .args(["-c", &script])
        .output()
        .expect("runs");
    let digest = String::from_utf8(made.stdout).expect("text");
    // In a query, + would be a space.
    format!("v1_{}", digest.replace('+', "%2B"))
}

#[tokio::test]
async fn with_a_token_only_health_needs_none() {
    let boxd = Boxd::start(&[]);
    assert_eq!(boxd.http("GET", "/envs", &[], b"").status, 200);
    boxd.configure(with_token()).await;
    let token = [("X-Access-Token", "secret")];
    assert_eq!(boxd.http("GET", "/health", &[], b"").status, 204);
    for target in ["/envs", "/metrics", "/files?path=/etc/passwd"] {
        let refused = boxd.http("GET", target, &[], b"");
        let code = if target.starts_with("/files") {
            serde_json::json!(401)
        } else {
            serde_json::json!("unauthenticated")
        };
        assert_eq!(
            (refused.status, refused.json()["code"].clone()),
            (401, code)
        );
        let wrong = [("X-Access-Token", "secret2")];
        assert_eq!(boxd.http("GET", target, &wrong, b"").status, 401);
        assert_eq!(boxd.http("GET", target, &token, b"").status, 200);
    }
    let request = || StatRequest {
        path: "/".to_owned(),
        ..Default::default()
    };
    let error = within(boxd.files().stat(request()))
        .await
        .expect_err("refused");
    assert_eq!(error.code, ErrorCode::Unauthenticated);
    let options = CallOptions::default().with_header("x-access-token", "secret");
    within(boxd.files().stat_with_options(request(), options))
        .await
        .expect("let in");
    // boxd's own service is the server's, whatever the token.
    boxd.info().await;
    let passed_on = CallOptions::default()
        .with_header("e2b-sandbox-id", "x")
        .with_header("x-access-token", "secret");
    let error = within(boxd.own().info_with_options(Default::default(), passed_on)).await;
    assert_eq!(
        error.expect_err("refused").code,
        ErrorCode::PermissionDenied
    );
}

#[tokio::test]
async fn signed_links_hold_for_what_they_were_made() {
    let boxd = Boxd::start(&[]);
    let path = boxd.named("a b");
    std::fs::write(&path, "content").expect("written");
    boxd.configure(with_token()).await;
    let query = path.replace(' ', "%20");
    let read = sign(&format!("{path}:read::secret"));
    let target = format!("/files?path={query}&signature={read}");
    let got = boxd.http("GET", &target, &[], b"");
    assert_eq!((got.status, got.text()), (200, "content"));
    let raw = [("Content-Type", "application/octet-stream")];
    let refused = boxd.http("POST", &target, &raw, b"x");
    assert_eq!(
        (refused.status, &refused.json()["message"]),
        (401, &"invalid signature".into())
    );
    let write = sign(&format!("{path}:write::secret"));
    let target = format!("/files?path={query}&signature={write}");
    assert_eq!(boxd.http("POST", &target, &raw, b"new").status, 200);
    assert_eq!(std::fs::read(&path).expect("there"), b"new");
    for (signed, query, expected) in [
        (
            "read::secret:9999999999",
            "&signature_expiration=9999999999",
            None,
        ),
        (
            "read::secret:1000000000",
            "&signature_expiration=1000000000",
            Some("signature is already expired"),
        ),
        (
            "read::secret:1000000000",
            "&signature_expiration=9999999999",
            Some("invalid signature"),
        ),
        (
            "read::secret",
            "&username=daemon",
            Some("invalid signature"),
        ),
        ("read:root:secret", "&username=root", None),
        ("read::other", "", Some("invalid signature")),
    ] {
        let signature = sign(&format!("{path}:{signed}"));
        let target = format!(
            "/files?path={}{query}&signature={signature}",
            path.replace(' ', "+")
        );
        let got = boxd.http("GET", &target, &[], b"");
        match expected {
            None => assert_eq!(got.status, 200, "{signed} {query}"),
            Some(words) => assert_eq!(
                got.json(),
                serde_json::json!({"code": 401, "message": words})
            ),
        }
    }
}

#[tokio::test]
async fn settings_are_everyones_default_and_hold_over_a_restart() {
    let mut boxd = Boxd::start_with(&[], &[("A", "boxd"), ("B", "boxd")]);
    let work = boxd.named("");
    std::fs::set_permissions(
        boxd.dir.path(),
        std::os::unix::fs::PermissionsExt::from_mode(0o755),
    )
    .expect("ours");
    boxd.configure(ConfigureRequest {
        default_user: "daemon".to_owned(),
        default_workdir: work.clone(),
        env: [("B", "set"), ("C", "set")]
            .map(|(k, v)| (k.to_owned(), v.to_owned()))
            .into_iter()
            .collect(),
        ..Default::default()
    })
    .await;
    for restarted in [false, true] {
        if restarted {
            boxd.restart(&[("A", "boxd"), ("B", "boxd")]);
        }
        let mut request = start_line("id -un; pwd; echo $HOME $USER $LOGNAME; echo $A $B $C $D");
        let envs = &mut request.process.get_or_insert_default().envs;
        envs.extend([("C", "call"), ("D", "call")].map(|(k, v)| (k.to_owned(), v.to_owned())));
        let got = whole(&boxd.process(), request).await;
        let expected = format!(
            "daemon\n{}\n/usr/sbin daemon daemon\nboxd set call call\n",
            work.trim_end_matches('/')
        );
        assert_eq!(crate::harness::text(&got.stdout), expected);
        let variables = boxd.http("GET", "/envs", &[], b"").json();
        assert_eq!(
            variables,
            serde_json::json!({"A": "boxd", "B": "set", "C": "set"})
        );
        // Our own commands keep their user and directory.
        assert_eq!(
            boxd.run("id -un; pwd; echo $B").await.stdout_tail,
            format!("root\n{}\nset\n", work.trim_end_matches('/')).into_bytes()
        );
    }
    let kept = boxd.dir.path().join("state/settings");
    let mode =
        std::os::unix::fs::MetadataExt::mode(&std::fs::metadata(Path::new(&kept)).expect("kept"));
    assert_eq!(mode & 0o777, 0o600);
    boxd.configure(ConfigureRequest::default()).await;
    assert_eq!(
        boxd.http("GET", "/envs", &[], b"").json(),
        serde_json::json!({"A": "boxd", "B": "boxd"})
    );
}

#[tokio::test]
async fn bad_settings_change_nothing() {
    let boxd = Boxd::start(&[]);
    boxd.configure(with_token()).await;
    let env = |name: &str, value: &str| ConfigureRequest {
        env: [(name.to_owned(), value.to_owned())].into_iter().collect(),
        ..Default::default()
    };
    for (settings, words) in [
        (
            ConfigureRequest {
                access_token: "a b".to_owned(),
                ..Default::default()
            },
            "access_token",
        ),
        (
            ConfigureRequest {
                access_token: "x".repeat(1025),
                ..Default::default()
            },
            "1024",
        ),
        (
            ConfigureRequest {
                default_user: "nosuchuser".to_owned(),
                ..Default::default()
            },
            "nosuchuser",
        ),
        (
            ConfigureRequest {
                default_workdir: "code".to_owned(),
                ..Default::default()
            },
            "default_workdir",
        ),
        (env("A=B", "c"), "A=B"),
        (env("", "c"), "env"),
        (env("A", "\0"), "env"),
        (env("A", &"x".repeat(128 * 1024)), "131072"),
    ] {
        let error = within(boxd.own().configure(settings))
            .await
            .expect_err("refused");
        assert_eq!(error.code, ErrorCode::InvalidArgument, "{error}");
        assert!(error.to_string().contains(words), "{error}");
    }
    assert_eq!(
        boxd.http("GET", "/envs", &[], b"").status,
        401,
        "the token still holds"
    );
}

#[tokio::test]
async fn figures_are_told() {
    let boxd = Boxd::start(&[]);
    let told = boxd.http("GET", "/metrics", &[], b"").json();
    for name in [
        "ts",
        "cpu_count",
        "mem_total",
        "mem_used",
        "disk_total",
        "disk_used",
    ] {
        assert!(
            told[name].as_f64().is_some_and(|value| value > 0.0),
            "{name} in {told}"
        );
    }
    assert!(
        told["cpu_used_pct"].is_number() && told["mem_cache"].is_number(),
        "{told}"
    );
}
