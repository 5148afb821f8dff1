"""Production's way: every request under `/v1/` to the production model and back, byte for byte.

`asgi.Proxy` is the application that uvicorn runs (`server.server_config` says how), `tap.Tap` what capture implements,
`metrics.ProxyMetrics` what is counted.
"""
