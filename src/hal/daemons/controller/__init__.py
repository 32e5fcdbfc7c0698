"""The controller: the REST server, the scheduling loop, the connections of agents. Concrete classes meet here."""
