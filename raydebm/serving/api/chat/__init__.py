"""The shapes of OpenAI's clients: chat completions, the Responses API, models."""
