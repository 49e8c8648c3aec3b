"""Routes about candidates that a client gives: scores, reranking, rewards."""
