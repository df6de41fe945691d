"""TextWorldExpress's text games: cooking, tidying up, finding coins, reading maps, counting and following rules."""
