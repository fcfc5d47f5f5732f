raise ImportError("no Ray in this double")
