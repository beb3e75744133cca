//! Compares the structures and constants of this crate with the installed C headers by compiling a C program.
//!
//! Requires a C compiler and the headers (Debian: libibverbs-dev, librdmacm-dev); `cargo xtask test --tier third` installs both.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::mem::offset_of;
use std::process::Command;

use rdma_sys::*;

/// Values by name, each with the C expression that must be equal.
type ExpectedValues = BTreeMap<String, (i128, String)>;

macro_rules! c_type {
    ($name:ident) => {
        concat!("struct ", stringify!($name))
    };
    ($name:ident $outer:literal $inner:literal) => {
        concat!("__typeof__(((", $outer, " *)0)->", $inner, ")")
    };
}

macro_rules! c_field {
    ($field:ident) => {
        stringify!($field)
    };
    ($field:ident $c:literal) => {
        $c
    };
}

/// Lists structures with their fields, including those whose C name differs or that are part of another structure.
macro_rules! structures {
    ($wanted:ident, $($name:ident $(in $outer:literal $inner:literal)? {
        $($field:ident $(= $c:literal)?),* $(,)?
    })*) => {$(
        let (name, c) = (stringify!($name), c_type!($name $($outer $inner)?));
        $wanted.insert(format!("size {name}"), (size_of::<$name>() as i128, format!("sizeof({c})")));
        let align = align_of::<$name>() as i128;
        $wanted.insert(format!("align {name}"), (align, format!("__alignof__({c})")));
        $(
            let offset = format!("__builtin_offsetof({c}, {})", c_field!($field $($c)?));
            let value = (offset_of!($name, $field) as i128, offset);
            $wanted.insert(format!("offset {name}.{}", stringify!($field)), value);
        )*
    )*};
}

macro_rules! constants {
    ($wanted:ident, $($constant:expr => $c:literal),* $(,)?) => {$(
        $wanted.insert(format!("value {}", $c), (i128::from($constant), $c.into()));
    )*};
}

fn of_devices(wanted: &mut ExpectedValues) {
    structures! { wanted,
        ibv_gid_global_t in "union ibv_gid" "global" { subnet_prefix, interface_id }
        ibv_gid_entry { gid, gid_index, port_num, gid_type, ndev_ifindex }
        _ibv_device_ops { _dummy1, _dummy2 }
        ibv_device { _ops, node_type, transport_type, name, dev_name, dev_path, ibdev_path }
        ibv_device_attr {
            fw_ver, node_guid, sys_image_guid, max_mr_size, page_size_cap, vendor_id,
            vendor_part_id, hw_ver, max_qp, max_qp_wr, device_cap_flags, max_sge, max_sge_rd,
            max_cq, max_cqe, max_mr, max_pd, max_qp_rd_atom, max_ee_rd_atom, max_res_rd_atom,
            max_qp_init_rd_atom, max_ee_init_rd_atom, atomic_cap, max_ee, max_rdd, max_mw,
            max_raw_ipv6_qp, max_raw_ethy_qp, max_mcast_grp, max_mcast_qp_attach,
            max_total_mcast_qp_attach, max_ah, max_fmr, max_map_per_fmr, max_srq, max_srq_wr,
            max_srq_sge, max_pkeys, local_ca_ack_delay, phys_port_cnt,
        }
        ibv_pd { context, handle }
        ibv_mr { context, pd, addr, length, handle, lkey, rkey }
        ibv_mw { context, pd, rkey, handle, type_ = "type" }
        ibv_global_route { dgid, flow_label, sgid_index, hop_limit, traffic_class }
        ibv_ah_attr { grh, dlid, sl, src_path_bits, static_rate, is_global, port_num }
        ibv_qp_cap { max_send_wr, max_recv_wr, max_send_sge, max_recv_sge, max_inline_data }
        ibv_qp_init_attr { qp_context, send_cq, recv_cq, srq, cap, qp_type, sq_sig_all }
        ibv_qp_attr {
            qp_state, cur_qp_state, path_mtu, path_mig_state, qkey, rq_psn, sq_psn, dest_qp_num,
            qp_access_flags, cap, ah_attr, alt_ah_attr, pkey_index, alt_pkey_index,
            en_sqd_async_notify, sq_draining, max_rd_atomic, max_dest_rd_atomic, min_rnr_timer,
            port_num, timeout, retry_cnt, rnr_retry, alt_port_num, alt_timeout, rate_limit,
        }
        ibv_qp {
            context, qp_context, pd, send_cq, recv_cq, srq, handle, qp_num, state, qp_type, mutex,
            cond, events_completed,
        }
        ibv_comp_channel { context, fd, refcnt }
        ibv_cq {
            context, channel, cq_context, handle, cqe, mutex, cond, comp_events_completed,
            async_events_completed,
        }
        ibv_context_ops {
            _compat_query_device, _compat_query_port, _compat_alloc_pd, _compat_dealloc_pd,
            _compat_reg_mr, _compat_rereg_mr, _compat_dereg_mr, alloc_mw, bind_mw, dealloc_mw,
            _compat_create_cq, poll_cq, req_notify_cq, _compat_cq_event, _compat_resize_cq,
            _compat_destroy_cq, _compat_create_srq, _compat_modify_srq, _compat_query_srq,
            _compat_destroy_srq, post_srq_recv, _compat_create_qp, _compat_query_qp,
            _compat_modify_qp, _compat_destroy_qp, post_send, post_recv, _compat_create_ah,
            _compat_destroy_ah, _compat_attach_mcast, _compat_detach_mcast, _compat_async_event,
        }
        ibv_context { device, ops, cmd_fd, async_fd, num_comp_vectors, mutex, abi_compat }
    }
}

fn of_work(wanted: &mut ExpectedValues) {
    structures! { wanted,
        ibv_mw_bind_info { mr, addr, length, mw_access_flags }
        ibv_sge { addr, length, lkey }
        rdma_t in "struct ibv_send_wr" "wr.rdma" { remote_addr, rkey }
        atomic_t in "struct ibv_send_wr" "wr.atomic" { remote_addr, compare_add, swap, rkey }
        ud_t in "struct ibv_send_wr" "wr.ud" { ah, remote_qpn, remote_qkey }
        xrc_t in "struct ibv_send_wr" "qp_type.xrc" { remote_srqn }
        bind_mw_t in "struct ibv_send_wr" "bind_mw" { mw, rkey, bind_info }
        tso_t in "struct ibv_send_wr" "tso" { hdr, hdr_sz, mss }
        ibv_send_wr {
            wr_id, next, sg_list, num_sge, opcode, send_flags, imm_data_invalidated_rkey_union =
            "imm_data", wr, qp_type, bind_mw_tso_union = "bind_mw",
        }
        ibv_recv_wr { wr_id, next, sg_list, num_sge }
        ibv_wc {
            wr_id, status, opcode, vendor_err, byte_len, imm_data_invalidated_rkey_union =
            "imm_data", qp_num, src_qp, wc_flags, pkey_index, slid, sl, dlid_path_bits,
        }
        ibv_async_event { element, event_type }
    }
}

fn of_connections(wanted: &mut ExpectedValues) {
    structures! { wanted,
        rdma_ib_addr { sgid, dgid, pkey }
        rdma_addr { src_addr_union = "src_addr", dst_addr_union = "dst_addr", addr }
        rdma_route { addr, path_rec, num_paths }
        rdma_event_channel { fd }
        rdma_cm_id {
            verbs, channel, context, qp, route, ps, port_num, event, send_cq_channel, send_cq,
            recv_cq_channel, recv_cq, srq, pd, qp_type,
        }
        rdma_conn_param {
            private_data, private_data_len, responder_resources, initiator_depth, flow_control,
            retry_count, rnr_retry_count, srq, qp_num,
        }
        rdma_ud_param { private_data, private_data_len, ah_attr, qp_num, qkey }
        rdma_cm_event { id, listen_id, event, status, param }
    }
}

fn states(wanted: &mut ExpectedValues) {
    constants! { wanted,
        ibv_node_type::IBV_NODE_CA => "IBV_NODE_CA",
        ibv_node_type::IBV_NODE_RNIC => "IBV_NODE_RNIC",
        ibv_transport_type::IBV_TRANSPORT_UNKNOWN => "IBV_TRANSPORT_UNKNOWN",
        ibv_transport_type::IBV_TRANSPORT_IB => "IBV_TRANSPORT_IB",
        ibv_transport_type::IBV_TRANSPORT_IWARP => "IBV_TRANSPORT_IWARP",
        ibv_atomic_cap::IBV_ATOMIC_NONE => "IBV_ATOMIC_NONE",
        ibv_mtu::IBV_MTU_256 => "IBV_MTU_256",
        ibv_mtu::IBV_MTU_4096 => "IBV_MTU_4096",
        ibv_port_state::IBV_PORT_DOWN => "IBV_PORT_DOWN",
        ibv_port_state::IBV_PORT_ACTIVE => "IBV_PORT_ACTIVE",
        ibv_mig_state::IBV_MIG_MIGRATED => "IBV_MIG_MIGRATED",
        ibv_mw_type::IBV_MW_TYPE_1 => "IBV_MW_TYPE_1",
        ibv_mw_type::IBV_MW_TYPE_2 => "IBV_MW_TYPE_2",
        ibv_qp_type::IBV_QPT_RC => "IBV_QPT_RC",
        ibv_qp_state::IBV_QPS_RTS => "IBV_QPS_RTS",
        ibv_qp_state::IBV_QPS_ERR => "IBV_QPS_ERR",
        ibv_wc_status::IBV_WC_SUCCESS => "IBV_WC_SUCCESS",
        ibv_wc_status::IBV_WC_LOC_LEN_ERR => "IBV_WC_LOC_LEN_ERR",
        ibv_wc_status::IBV_WC_LOC_QP_OP_ERR => "IBV_WC_LOC_QP_OP_ERR",
        ibv_wc_status::IBV_WC_LOC_PROT_ERR => "IBV_WC_LOC_PROT_ERR",
        ibv_wc_status::IBV_WC_WR_FLUSH_ERR => "IBV_WC_WR_FLUSH_ERR",
        ibv_wc_status::IBV_WC_MW_BIND_ERR => "IBV_WC_MW_BIND_ERR",
        ibv_wc_status::IBV_WC_BAD_RESP_ERR => "IBV_WC_BAD_RESP_ERR",
        ibv_wc_status::IBV_WC_REM_ABORT_ERR => "IBV_WC_REM_ABORT_ERR",
        ibv_wc_status::IBV_WC_FATAL_ERR => "IBV_WC_FATAL_ERR",
        ibv_wc_status::IBV_WC_RESP_TIMEOUT_ERR => "IBV_WC_RESP_TIMEOUT_ERR",
        ibv_wc_status::IBV_WC_LOC_ACCESS_ERR => "IBV_WC_LOC_ACCESS_ERR",
        ibv_wc_status::IBV_WC_REM_INV_REQ_ERR => "IBV_WC_REM_INV_REQ_ERR",
        ibv_wc_status::IBV_WC_REM_ACCESS_ERR => "IBV_WC_REM_ACCESS_ERR",
        ibv_wc_status::IBV_WC_REM_OP_ERR => "IBV_WC_REM_OP_ERR",
        ibv_wc_status::IBV_WC_RETRY_EXC_ERR => "IBV_WC_RETRY_EXC_ERR",
        ibv_wc_status::IBV_WC_RNR_RETRY_EXC_ERR => "IBV_WC_RNR_RETRY_EXC_ERR",
        ibv_wc_status::IBV_WC_GENERAL_ERR => "IBV_WC_GENERAL_ERR",
        ibv_wc_opcode::IBV_WC_SEND => "IBV_WC_SEND",
        ibv_wc_opcode::IBV_WC_RDMA_WRITE => "IBV_WC_RDMA_WRITE",
        ibv_wc_opcode::IBV_WC_RDMA_READ => "IBV_WC_RDMA_READ",
        ibv_wc_opcode::IBV_WC_RECV => "IBV_WC_RECV",
        ibv_wr_opcode::IBV_WR_RDMA_WRITE => "IBV_WR_RDMA_WRITE",
        ibv_wr_opcode::IBV_WR_SEND => "IBV_WR_SEND",
        ibv_wr_opcode::IBV_WR_RDMA_READ => "IBV_WR_RDMA_READ",
        ibv_wr_opcode::IBV_WR_LOCAL_INV => "IBV_WR_LOCAL_INV",
    }
}

fn rights(wanted: &mut ExpectedValues) {
    constants! { wanted,
        ibv_wr_opcode::IBV_WR_BIND_MW => "IBV_WR_BIND_MW",
        ibv_wr_opcode::IBV_WR_SEND_WITH_INV => "IBV_WR_SEND_WITH_INV",
        ibv_event_type::IBV_EVENT_CQ_ERR => "IBV_EVENT_CQ_ERR",
        ibv_event_type::IBV_EVENT_QP_FATAL => "IBV_EVENT_QP_FATAL",
        ibv_event_type::IBV_EVENT_QP_REQ_ERR => "IBV_EVENT_QP_REQ_ERR",
        ibv_event_type::IBV_EVENT_QP_ACCESS_ERR => "IBV_EVENT_QP_ACCESS_ERR",
        ibv_event_type::IBV_EVENT_COMM_EST => "IBV_EVENT_COMM_EST",
        ibv_event_type::IBV_EVENT_DEVICE_FATAL => "IBV_EVENT_DEVICE_FATAL",
        ibv_event_type::IBV_EVENT_PORT_ACTIVE => "IBV_EVENT_PORT_ACTIVE",
        ibv_event_type::IBV_EVENT_PORT_ERR => "IBV_EVENT_PORT_ERR",
        ibv_event_type::IBV_EVENT_LID_CHANGE => "IBV_EVENT_LID_CHANGE",
        ibv_event_type::IBV_EVENT_PKEY_CHANGE => "IBV_EVENT_PKEY_CHANGE",
        ibv_event_type::IBV_EVENT_SM_CHANGE => "IBV_EVENT_SM_CHANGE",
        ibv_event_type::IBV_EVENT_CLIENT_REREGISTER => "IBV_EVENT_CLIENT_REREGISTER",
        ibv_event_type::IBV_EVENT_GID_CHANGE => "IBV_EVENT_GID_CHANGE",
        ibv_event_type::IBV_EVENT_WQ_FATAL => "IBV_EVENT_WQ_FATAL",
        ibv_access_flags::IBV_ACCESS_LOCAL_WRITE.0 => "IBV_ACCESS_LOCAL_WRITE",
        ibv_access_flags::IBV_ACCESS_REMOTE_WRITE.0 => "IBV_ACCESS_REMOTE_WRITE",
        ibv_access_flags::IBV_ACCESS_REMOTE_READ.0 => "IBV_ACCESS_REMOTE_READ",
        ibv_access_flags::IBV_ACCESS_MW_BIND.0 => "IBV_ACCESS_MW_BIND",
        ibv_access_flags::IBV_ACCESS_RELAXED_ORDERING.0 => "IBV_ACCESS_RELAXED_ORDERING",
        ibv_send_flags::IBV_SEND_FENCE.0 => "IBV_SEND_FENCE",
        ibv_send_flags::IBV_SEND_SIGNALED.0 => "IBV_SEND_SIGNALED",
        ibv_send_flags::IBV_SEND_INLINE.0 => "IBV_SEND_INLINE",
        ibv_wc_flags::IBV_WC_GRH.0 => "IBV_WC_GRH",
        ibv_wc_flags::IBV_WC_WITH_IMM.0 => "IBV_WC_WITH_IMM",
        ibv_wc_flags::IBV_WC_WITH_INV.0 => "IBV_WC_WITH_INV",
        ibv_device_cap_flags::IBV_DEVICE_MEM_WINDOW.0 => "IBV_DEVICE_MEM_WINDOW",
        ibv_device_cap_flags::IBV_DEVICE_MEM_MGT_EXTENSIONS.0 => "IBV_DEVICE_MEM_MGT_EXTENSIONS",
        ibv_device_cap_flags::IBV_DEVICE_MEM_WINDOW_TYPE_2A.0 => "IBV_DEVICE_MEM_WINDOW_TYPE_2A",
        ibv_device_cap_flags::IBV_DEVICE_MEM_WINDOW_TYPE_2B.0 => "IBV_DEVICE_MEM_WINDOW_TYPE_2B",
        ibv_qp_attr_mask::IBV_QP_STATE.0 => "IBV_QP_STATE",
        ibv_qp_attr_mask::IBV_QP_ACCESS_FLAGS.0 => "IBV_QP_ACCESS_FLAGS",
        ibv_qp_attr_mask::IBV_QP_MAX_QP_RD_ATOMIC.0 => "IBV_QP_MAX_QP_RD_ATOMIC",
        ibv_qp_attr_mask::IBV_QP_MAX_DEST_RD_ATOMIC.0 => "IBV_QP_MAX_DEST_RD_ATOMIC",
        IBV_LINK_LAYER_UNSPECIFIED => "IBV_LINK_LAYER_UNSPECIFIED",
        IBV_LINK_LAYER_INFINIBAND => "IBV_LINK_LAYER_INFINIBAND",
        IBV_LINK_LAYER_ETHERNET => "IBV_LINK_LAYER_ETHERNET",
        IBV_GID_TYPE_IB => "IBV_GID_TYPE_IB",
        IBV_GID_TYPE_ROCE_V1 => "IBV_GID_TYPE_ROCE_V1",
        IBV_GID_TYPE_ROCE_V2 => "IBV_GID_TYPE_ROCE_V2",
    }
}

fn events(wanted: &mut ExpectedValues) {
    constants! { wanted,
        rdma_cm_event_type::RDMA_CM_EVENT_ADDR_RESOLVED => "RDMA_CM_EVENT_ADDR_RESOLVED",
        rdma_cm_event_type::RDMA_CM_EVENT_ADDR_ERROR => "RDMA_CM_EVENT_ADDR_ERROR",
        rdma_cm_event_type::RDMA_CM_EVENT_ROUTE_RESOLVED => "RDMA_CM_EVENT_ROUTE_RESOLVED",
        rdma_cm_event_type::RDMA_CM_EVENT_ROUTE_ERROR => "RDMA_CM_EVENT_ROUTE_ERROR",
        rdma_cm_event_type::RDMA_CM_EVENT_CONNECT_REQUEST => "RDMA_CM_EVENT_CONNECT_REQUEST",
        rdma_cm_event_type::RDMA_CM_EVENT_CONNECT_RESPONSE => "RDMA_CM_EVENT_CONNECT_RESPONSE",
        rdma_cm_event_type::RDMA_CM_EVENT_CONNECT_ERROR => "RDMA_CM_EVENT_CONNECT_ERROR",
        rdma_cm_event_type::RDMA_CM_EVENT_UNREACHABLE => "RDMA_CM_EVENT_UNREACHABLE",
        rdma_cm_event_type::RDMA_CM_EVENT_REJECTED => "RDMA_CM_EVENT_REJECTED",
        rdma_cm_event_type::RDMA_CM_EVENT_ESTABLISHED => "RDMA_CM_EVENT_ESTABLISHED",
        rdma_cm_event_type::RDMA_CM_EVENT_DISCONNECTED => "RDMA_CM_EVENT_DISCONNECTED",
        rdma_cm_event_type::RDMA_CM_EVENT_DEVICE_REMOVAL => "RDMA_CM_EVENT_DEVICE_REMOVAL",
        rdma_cm_event_type::RDMA_CM_EVENT_ADDR_CHANGE => "RDMA_CM_EVENT_ADDR_CHANGE",
        rdma_cm_event_type::RDMA_CM_EVENT_TIMEWAIT_EXIT => "RDMA_CM_EVENT_TIMEWAIT_EXIT",
        rdma_port_space::RDMA_PS_TCP => "RDMA_PS_TCP",
        RDMA_OPTION_ID => "RDMA_OPTION_ID",
        RDMA_OPTION_ID_TOS => "RDMA_OPTION_ID_TOS",
        RDMA_OPTION_ID_ACK_TIMEOUT => "RDMA_OPTION_ID_ACK_TIMEOUT",
        RDMA_OPTION_ID_REUSEADDR => "RDMA_OPTION_ID_REUSEADDR",
        RDMA_OPTION_ID_AFONLY => "RDMA_OPTION_ID_AFONLY",
    }
}

fn wanted() -> ExpectedValues {
    let mut wanted = ExpectedValues::new();
    for part in [of_devices, of_work, of_connections, states, rights, events] {
        part(&mut wanted);
    }
    wanted
}

fn program(wanted: &ExpectedValues) -> String {
    let mut c = String::from(
        "#include <stdio.h>\n#include <infiniband/verbs.h>\n#include <rdma/rdma_cma.h>\nint main(void) {\n",
    );
    for (name, (_, expression)) in wanted {
        c += &format!("  printf(\"%lld {name}\\n\", (long long)({expression}));\n");
    }
    c + "  return 0;\n}\n"
}

#[test]
fn bindings_match_c_headers() {
    let wanted = wanted();
    let dir = std::path::Path::new(env!("CARGO_TARGET_TMPDIR"));
    let (source, binary) = (dir.join("layout.c"), dir.join("layout"));
    std::fs::write(&source, program(&wanted)).unwrap();
    let compiled = Command::new("cc").arg("-o").arg(&binary).arg(&source).output();
    let compiled = compiled.expect("a C compiler (Debian: gcc, libc6-dev)");
    let why = String::from_utf8_lossy(&compiled.stderr);
    assert!(
        !why.contains("No such file"),
        "the C headers are missing (Debian: libibverbs-dev, librdmacm-dev): {why}"
    );
    assert!(compiled.status.success(), "{why}");
    let told = Command::new(&binary).output().unwrap();
    let told = String::from_utf8(told.stdout).unwrap();
    assert_eq!(told.lines().count(), wanted.len());
    let wrong = told.lines().filter(|line| {
        let (value, name) = line.split_once(' ').unwrap();
        wanted[name].0 != value.parse::<i128>().unwrap()
    });
    let wrong: Vec<String> = wrong
        .map(|l| format!("{l} in C, {} here", wanted[l.split_once(' ').unwrap().1].0))
        .collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn every_structure_is_compared() {
    let wanted = wanted();
    let sources = [include_str!("../src/verbs.rs"), include_str!("../src/cma.rs")].concat();
    let mut after_repr = false;
    let mut found = 0;
    for line in sources.lines() {
        if line == "#[repr(C)]" {
            after_repr = true;
        } else if let Some(name) = line.strip_prefix("pub struct ").filter(|_| after_repr) {
            let name = name.split(' ').next().unwrap();
            assert!(wanted.contains_key(&format!("size {name}")), "{name} is not compared");
            (after_repr, found) = (false, found + 1);
        } else if !line.starts_with("#[derive") {
            after_repr = false;
        }
    }
    assert!(found > 30, "{found}");
}
