"""Production's way: every request under `/v1/` to the production model and back, byte for byte.

    agent ──▶ agent.AgentConnection ──▶ forward.Forward ──▶ connection.Connection ──▶ production
                        (server)        joins the two  │         (client, kept in a pool.Pool)
                                                       └─ tap.Recording ─▶ channel.Sender ─▶ the training side

`gateway.Gateway` is what the connections of one worker share, `upstreams` says where its two routes lead,
`metrics.Board` counts for all workers.
"""
