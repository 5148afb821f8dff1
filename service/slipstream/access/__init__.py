"""Who may use the sidecar: API keys with roles, checked in the proxy's workers before anything goes on."""
