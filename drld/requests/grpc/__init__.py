"""gRPC without I/O: HTTP/2 by `h2`, protobuf messages, and the services of the front."""
