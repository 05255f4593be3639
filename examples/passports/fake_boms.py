"""Two tenants' bills of materials, and rules for them."""

CSV = """\
component,material,mass_kg,recycled_share
cathode,NMC 811,112.4,0.16
anode,graphite,71.0,0.0
electrolyte,LiPF6,38.2,0.06
housing,aluminium,54.9,0.42
"""

JSON = """\
[{"component": "cathode", "material": "LFP", "mass_kg": 4.1, "recycled_share": 0},
 {"component": "anode", "material": "graphite", "mass_kg": 2.2, "recycled_share": 0.1},
 {"component": "housing", "material": "steel", "mass_kg": 1.4, "recycled_share": 0.65}]
"""

RULES = {
    "types": {"mass_kg": "number", "recycled_share": "number", "material": "text"},
    "rules": [
        {"field": "mass_kg", "op": ">", "value": 0},
        {"field": "recycled_share", "op": "<=", "value": 1},
        {"field": "material", "op": "<>", "value": ""},
    ],
}
