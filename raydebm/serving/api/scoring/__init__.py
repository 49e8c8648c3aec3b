"""Routes about candidates that a client gives: scores, verification, reranking, rewards."""
