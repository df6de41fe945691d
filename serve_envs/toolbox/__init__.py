"""Five small services, used through tools: weather, films, a to-do list, spreadsheets, a library of papers."""
