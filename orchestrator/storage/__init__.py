"""The object store: blobs under unique keys, create-only markers, bundles as folders."""
