"""API keys with roles, checked in the proxy's workers before a request goes any further."""
