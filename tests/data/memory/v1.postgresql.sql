-- The same database with the tables as that version made them on PostgreSQL.
CREATE TABLE roofclimb_schema (
	id INTEGER NOT NULL, 
	version INTEGER NOT NULL, 
	PRIMARY KEY (id), 
	CONSTRAINT one_row CHECK (id = 1)
);
CREATE TABLE roofclimb_records (
	id SERIAL NOT NULL, 
	created VARCHAR(40) NOT NULL, 
	run VARCHAR(200) NOT NULL, 
	iteration INTEGER NOT NULL, 
	family VARCHAR(200) NOT NULL, 
	backend VARCHAR(200) NOT NULL, 
	arch VARCHAR(200) NOT NULL, 
	shape_class VARCHAR(200) NOT NULL, 
	fingerprint VARCHAR(16) NOT NULL, 
	parameters JSON NOT NULL, 
	outcome VARCHAR(16) NOT NULL, 
	effect DOUBLE PRECISION, 
	effect_low DOUBLE PRECISION, 
	effect_high DOUBLE PRECISION, 
	reason TEXT NOT NULL, 
	versions JSON NOT NULL, 
	lesson TEXT NOT NULL, 
	PRIMARY KEY (id), 
	CONSTRAINT one_outcome UNIQUE (run, iteration, fingerprint, family, backend, arch, shape_class), 
	CONSTRAINT known_outcome CHECK (outcome IN ('positive', 'negative', 'rejected')), 
	CONSTRAINT effect_is_measured CHECK ((outcome = 'rejected') = (effect IS NULL))
);
CREATE INDEX by_scope ON roofclimb_records (family, backend, arch, shape_class);
CREATE INDEX ix_roofclimb_records_fingerprint ON roofclimb_records (fingerprint);
CREATE TABLE roofclimb_methods (
	record_id INTEGER NOT NULL, 
	position INTEGER NOT NULL, 
	method VARCHAR(200) NOT NULL, 
	PRIMARY KEY (record_id, position), 
	FOREIGN KEY(record_id) REFERENCES roofclimb_records (id) ON DELETE CASCADE
);
CREATE INDEX ix_roofclimb_methods_method ON roofclimb_methods (method);
INSERT INTO "roofclimb_records" VALUES(1,'2026-11-30T15:00:27.903786+00:00','run_20260601_010203',1,'gemm','cpp','x86_64','1e8','6314b90e5b2d8704','{"memory.tiling_cache": {"tile_m": 64}}','positive',1.5,1.48,1.52,'measured','{"g++": "12.2.0", "roofclimb": "0.1.0"}','Tile for L2');
INSERT INTO "roofclimb_records" VALUES(2,'2026-11-30T15:00:27.903786+00:00','run_20260601_010203',2,'gemm','cpp','x86_64','1e8','bfb8336da94ad639','{}','negative',0.97,0.95,0.99,'measured','{"g++": "12.2.0", "roofclimb": "0.1.0"}','');
INSERT INTO "roofclimb_records" VALUES(3,'2026-11-30T15:00:27.903786+00:00','run_20260601_010203',3,'gemm','cpp','x86_64','1e8','b8efcad66bffb2b9','{}','rejected',NULL,NULL,NULL,'build: no such intrinsic','{"g++": "12.2.0", "roofclimb": "0.1.0"}','');
INSERT INTO "roofclimb_schema" VALUES(1,1);
INSERT INTO "roofclimb_methods" VALUES(1,0,'memory.tiling_cache');
INSERT INTO "roofclimb_methods" VALUES(1,1,'compute.simd');
INSERT INTO "roofclimb_methods" VALUES(2,0,'latency.prefetch');
INSERT INTO "roofclimb_methods" VALUES(3,0,'compute.loop_unroll');
SELECT setval('roofclimb_records_id_seq', 3);
