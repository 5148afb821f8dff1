"""Production's way: every request under `/v1/` to the production model and back, byte for byte.

    agent ──▶ agent.AgentConnection ──▶ forward.Forward ──▶ connection.Connection ──▶ production
                        (server)        joins the two  │         (client, kept in a pool.Pool)
                                                       └─ tap.Recording ─▶ channel.Sender ─▶ the training side

An agent's connection reads by `reader.RequestReader`, and answers what it does not pass on with a `refusal.Refusal`.
`gateway.Gateway` is what the connections of one worker share, `upstreams` says where its two routes lead,
`metrics.SharedCounters` counts for all workers.
"""
