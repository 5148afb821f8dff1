"""HTTP/1.1 to an upstream: kept connections, headers as bytes, deadlines, encodings. It knows no route and no role."""
