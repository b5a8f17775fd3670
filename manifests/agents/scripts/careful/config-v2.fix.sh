cat > config/service.toml <<'TOML'
version = 2

[service]
name = "relay-eu"
host = "0.0.0.0"
port = 2525
log_level = "warning"
debug = false
shutdown_seconds = 120

[limits]
message_bytes = 26_214_400
spool_bytes = 2_147_483_648
per_minute = 600
recipients = 100

[[upstreams]]
name = "alpha"
scheme = "smtp"
host = "alpha.mail.example"
port = 25
timeout_seconds = 30
retries = 3
weight = 5
tls = true
enabled = true
tags = ["mail", "bulk"]
limits = { per_minute = 1200 }

[[upstreams]]
name = "beta"
scheme = "smtps"
host = "beta.mail.example"
port = 465
timeout_seconds = 90
retries = 0
weight = 1
tls = true
enabled = true
tags = ["mail"]
password_env = "RELAY_BETA_PASSWORD"

[[upstreams]]
name = "gamma"
scheme = "smtp"
host = "10.0.4.7"
port = 25
timeout_seconds = 30
retries = 3
weight = 1
tls = false
enabled = false
tags = []
limits = { message_bytes = 524_288 }
TOML
rm config/service.ini config/limits.json
