//! Server start, TLS reload, graceful stop, health, metrics and logs. No domain knowledge lives here.
