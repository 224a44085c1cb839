-- Npgsql 8: what it asks of a database once, before the first connection is handed out.

SELECT version();

SELECT ns.nspname, t.oid, t.typname, t.typtype, t.typnotnull, t.elemtypoid
FROM (
    SELECT
        typ.oid, typ.typnamespace, typ.typname, typ.typtype, typ.typrelid, typ.typnotnull, typ.relkind,
        elemtyp.oid AS elemtypoid, elemtyp.typname AS elemtypname, elemcls.relkind AS elemrelkind,
        CASE WHEN elemproc.proname = 'array_recv' THEN 'a' ELSE elemtyp.typtype END AS elemtyptype,
        typ.typcategory
    FROM (
        SELECT typ.oid, typnamespace, typname, typrelid, typnotnull, relkind, typelem AS elemoid,
            CASE WHEN proc.proname = 'array_recv' THEN 'a' ELSE typ.typtype END AS typtype,
            CASE
                WHEN proc.proname = 'array_recv' THEN typ.typelem
                WHEN typ.typtype = 'r' THEN rngsubtype
                WHEN typ.typtype = 'm' THEN (SELECT rngtypid FROM pg_range WHERE rngmultitypid = typ.oid)
                WHEN typ.typtype = 'd' THEN typ.typbasetype
            END AS elemtypoid,
            typcategory
        FROM pg_type AS typ
        LEFT JOIN pg_class AS cls ON (cls.oid = typ.typrelid)
        LEFT JOIN pg_proc AS proc ON proc.oid = typ.typreceive
        LEFT JOIN pg_range ON (pg_range.rngtypid = typ.oid)
    ) AS typ
    LEFT JOIN pg_type AS elemtyp ON elemtyp.oid = elemtypoid
    LEFT JOIN pg_class AS elemcls ON (elemcls.oid = elemtyp.typrelid)
    LEFT JOIN pg_proc AS elemproc ON elemproc.oid = elemtyp.typreceive
) AS t
JOIN pg_namespace AS ns ON (ns.oid = typnamespace)
WHERE
    typtype IN ('b', 'r', 'm', 'e', 'd') OR
    (typtype = 'c' AND relkind = 'c') OR
    (typtype = 'p' AND typname IN ('record', 'void', 'unknown')) OR
    (typtype = 'a' AND (
        elemtyptype IN ('b', 'r', 'm', 'e', 'd') OR
        (elemtyptype = 'p' AND elemtypname IN ('record', 'void')) OR
        (elemtyptype = 'c' AND elemrelkind = 'c')
    ))
ORDER BY CASE
    WHEN typtype IN ('b', 'e', 'p') THEN 0
    WHEN typtype = 'c' THEN 1
    WHEN typtype = 'r' THEN 2
    WHEN typtype = 'm' THEN 3
    WHEN typtype = 'd' AND elemtyptype <> 'a' THEN 4
    WHEN typtype = 'a' THEN 5
    WHEN typtype = 'd' AND elemtyptype = 'a' THEN 6
END;
--@ pg_catalog|23|int4|b|f|NULL
--@ pg_catalog|1007|_int4|a|f|23
--@ pg_catalog|2249|record|p|f|NULL

SELECT typ.oid, att.attname, att.atttypid
FROM pg_type AS typ
JOIN pg_namespace AS ns ON (ns.oid = typ.typnamespace)
JOIN pg_class AS cls ON (cls.oid = typ.typrelid)
JOIN pg_attribute AS att ON (att.attrelid = typ.typrelid)
WHERE (typ.typtype = 'c' AND cls.relkind = 'c') AND attnum > 0 AND NOT attisdropped
ORDER BY typ.oid, att.attnum;
--@ none

SELECT pg_type.oid, enumlabel
FROM pg_enum
JOIN pg_type ON pg_type.oid = enumtypid
ORDER BY oid, enumsortorder;
--@ none

DISCARD ALL;
