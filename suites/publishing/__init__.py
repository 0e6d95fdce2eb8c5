"""Results made public: the report page, and a site of many nights."""
