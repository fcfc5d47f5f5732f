def placement_group_table():
    return {}
