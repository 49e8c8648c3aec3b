"""The batch API of OpenAI and those like it: many requests in one file, half the price, within a day."""
