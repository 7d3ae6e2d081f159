// Made from the server's code by tools/wire_types.py (`make types`): do not edit.
//
// A field with `?` may be missing. A newer server may send more: ignore what you do not know.

export interface AccountView {
  user_id: string;
  username: string;
  display_name: string;
  created_at: string;
  updated_at: string;
}

/** One of the user's devices has stored everything up to here. */
export interface AckFrame {
  type: "ack";
  timestamp?: string | null;
  payload: AckPayload;
}

export interface AckPayload {
  chat_id: string;
  last_acked_sequence: number;
}

export interface AddMember {
  user_id: string;
  role?: "admin" | "member";
}

export interface AddedMember {
  chat_id: string;
  user_id: string;
  role: Role;
  display_name: string;
  joined_at: string;
  added_by: string;
}

/** At least one of the two. A read also acknowledges delivery. */
export interface AdvancePositions {
  last_acked_sequence?: number | null;
  last_read_sequence?: number | null;
}

export interface AroundView {
  target_sequence: number;
  messages: MessageView[];
  has_more_before: boolean;
  has_more_after: boolean;
  as_of: number;
}

export interface Capabilities {
  max_message_size_bytes: number;
  max_chat_members: number;
  supported_content_types: string[];
  auth_methods: string[];
  websocket_protocol_version: number;
  websocket_path: string;
}

export interface ChangePassword {
  current_password: string;
  new_password: string;
}

export interface ChangeRole {
  role: "admin" | "member";
}

export interface ChangedMember {
  chat_id: string;
  user_id: string;
  role: Role;
  display_name: string;
  joined_at: string;
  updated_by: string;
}

export interface ChatClosedPayload {
  chat_id: string;
  chat_type: ChatType;
  name?: string | null;
  created_by: string;
  created_at: string;
  updated_at: string;
  membership_version: number;
  block_changes?: number;
  head: number;
  members: string[];
  closed_by: string;
  closed_at: string;
}

export interface ChatClosedRecord {
  event_type: "ChatClosed";
  event_id: string;
  event_version: number;
  event_time: string;
  partition_key: string;
  producer_id: string;
  trace_id: string;
  payload: ChatClosedPayload;
}

export interface ChatCreatedPayload {
  chat_id: string;
  chat_type: ChatType;
  name?: string | null;
  created_by: string;
  created_at: string;
  updated_at: string;
  membership_version: number;
  block_changes?: number;
  head: number;
  initial_members: string[];
  status: string;
  member_count: number;
}

export interface ChatCreatedRecord {
  event_type: "ChatCreated";
  event_id: string;
  event_version: number;
  event_time: string;
  partition_key: string;
  producer_id: string;
  trace_id: string;
  payload: ChatCreatedPayload;
}

/** One page of the state of all the user's chats; unasked after connecting. */
export interface ChatDigestFrame {
  type: "chat_digest";
  request_id?: string | null;
  timestamp: string;
  payload: ChatDigestPayload;
}

export interface ChatDigestPayload {
  digest_id: string;
  page: number;
  last: boolean;
  chats: DigestEntry[];
}

export interface ChatListEntry {
  chat_id: string;
  type: ChatType;
  name: string | null;
  created_at: string;
  updated_at: string;
  member_count: number;
  membership_version: number;
  current_sequence: number;
  my_membership: MyStanding;
  last_message: LastMessageView | null;
  pending_ack_count: number;
  unread_count: number;
  other_member?: PersonView | null;
  is_hidden?: boolean;
}

export interface ChatSummary {
  chat_id: string;
  type: ChatType;
  name: string | null;
  created_by: string;
  created_at: string;
  updated_at: string;
  member_count: number;
  membership_version: number;
}

export type ChatType =
  | "direct"
  | "group";

export interface ChatUpdateFrame {
  type: "chat_update";
  timestamp: string;
  payload: ChatUpdatePayload;
}

export interface ChatUpdatePayload {
  chat_id: string;
  membership_version: number;
  change: string;
  chat_type: ChatType;
  name?: string | null;
  user_id?: string | null;
  role?: Role | null;
  joined_sequence?: number | null;
  head: number;
  changed_by: string;
  changed_at: string;
  is_closed?: boolean;
}

export interface ChatUpdatedPayload {
  chat_id: string;
  chat_type: ChatType;
  name?: string | null;
  created_by: string;
  created_at: string;
  updated_at: string;
  membership_version: number;
  block_changes?: number;
  head: number;
  member_count: number;
  changed_by: string;
  changed_at: string;
}

export interface ChatUpdatedRecord {
  event_type: "ChatUpdated";
  event_id: string;
  event_version: number;
  event_time: string;
  partition_key: string;
  producer_id: string;
  trace_id: string;
  payload: ChatUpdatedPayload;
}

export interface ChatView {
  chat_id: string;
  type: ChatType;
  name: string | null;
  created_by: string;
  created_at: string;
  updated_at: string;
  member_count: number;
  membership_version: number;
  members: MemberView[];
  current_sequence: number;
  my_membership: MyStanding;
}

export interface ConnectionClosingFrame {
  type: "connection_closing";
  timestamp: string;
  payload: ConnectionClosingPayload;
}

export interface ConnectionClosingPayload {
  reason: string;
  message: string;
  reconnect_delay_ms: number;
}

export interface ConnectionEstablishedFrame {
  type: "connection_established";
  timestamp: string;
  payload: ConnectionEstablishedPayload;
}

export interface ConnectionEstablishedPayload {
  connection_id: string;
  user_id: string;
  device_id: string;
  server_time: string;
  heartbeat_interval_ms: number;
  protocol_version: number;
  epoch: string;
  features?: string[];
}

export interface CreateChat {
  type: ChatType;
  member_ids: string[];
  name?: string | null;
}

export interface CreatedChatView {
  chat_id: string;
  type: ChatType;
  name: string | null;
  created_by: string;
  created_at: string;
  updated_at: string;
  member_count: number;
  membership_version: number;
  members: MemberView[];
}

export interface DeleteMe {
  password: string;
  erase_messages?: boolean;
}

export interface DeleteMessage {
  /** A UUID. The same one again is the same request again. */
  client_message_id: string;
  /** Why, for all members to read. */
  reason?: string | null;
}

export interface DeleteMessageFrame {
  type: "delete_message";
  timestamp?: string | null;
  request_id: string;
  payload: DeleteMessagePayload;
}

export interface DeleteMessagePayload {
  client_message_id: string;
  chat_id: string;
  target: number;
  is_first?: boolean;
  reason?: string | null;
}

export interface DeliveryStateView {
  chat_id: string;
  last_acked_sequence: number;
  last_read_sequence: number;
  current_sequence: number;
  unread_count: number;
  mentions_unread_count: number;
  updated_at: string;
}

export interface DeliveryStatusView {
  chat_id: string;
  chat_type: ChatType;
  member_count: number;
  delivery_summary: DeliverySummaryView;
  members: MemberDeliveryView[];
  pagination: MembersPagination;
}

export interface DeliverySummaryView {
  sequence: number;
  delivered_count: number;
  read_count: number;
  pending_count: number;
  all_delivered: boolean;
}

/**
 * The state of one chat for one user: all a device needs to know what it has missed.
 *
 * `membership_version` is the version that members are shown (`Chat.shown_version`).
 */
export interface DigestEntry {
  chat_id: string;
  chat_type: ChatType;
  head: number;
  membership_version: number;
  joined_sequence: number;
  delivered: number;
  read: number;
  others_delivered: number;
  others_read: number;
  unread: number;
  is_hidden?: boolean;
  mentions_unread?: number;
}

/** Asks for the state of all chats again; the first digest comes unasked. */
export interface DigestRequestFrame {
  type: "digest_request";
  timestamp?: string | null;
  request_id: string;
  payload: EmptyPayload;
}

export interface EditMessage {
  /** A UUID. The same one again is the same request again. */
  client_message_id: string;
  /** 1 to 4096 bytes of UTF-8. */
  content: string;
  /** The sequence of the edit that you saw last, 0 for none. */
  base?: number | null;
}

export interface EditMessageFrame {
  type: "edit_message";
  timestamp?: string | null;
  request_id: string;
  payload: EditMessagePayload;
}

export interface EditMessagePayload {
  client_message_id: string;
  chat_id: string;
  target: number;
  is_first?: boolean;
  content: string;
  base?: number | null;
}

/** `{}`: the payload is always there, also when there is nothing to say. */
export interface EmptyPayload {
}

/** An entry that is no message, to a client that has offered `entries`. */
export interface EntryFrame {
  type: "entry";
  timestamp: string;
  payload: MessagePayload;
}

/** An edit, a deletion or a reaction. The text of an edit is its content. */
export interface EntryPersistedPayload {
  chat_id: string;
  message_id: string;
  sequence: number;
  prev_sequence: number;
  sender_id: string;
  content?: string;
  content_type: string;
  reply_to?: number | null;
  mentions?: string[];
  client_message_id: string;
  created_at: string;
  is_damaged?: boolean;
  is_deleted?: boolean;
  deleted_by?: number | null;
  membership_version: number;
  origin_connection_id?: string | null;
  kind: string;
  target: number;
  reason?: string | null;
  emoji?: string | null;
  is_on?: boolean;
  count?: number;
}

/** Not a `MessagePersisted`: who does not know entries must not take one for a message. */
export interface EntryPersistedRecord {
  event_type: "EntryPersisted";
  event_id: string;
  event_version: number;
  event_time: string;
  partition_key: string;
  producer_id: string;
  trace_id: string;
  payload: EntryPersistedPayload;
}

export interface ErrorBody {
  error: ErrorDetail;
}

export interface ErrorDetail {
  code: string;
  message: string;
  request_id: string;
  details?: Record<string, unknown> | null;
}

export interface ErrorFrame {
  type: "error";
  request_id?: string | null;
  timestamp: string;
  payload: ErrorPayload;
}

export interface ErrorPayload {
  code: string;
  message: string;
  details?: Record<string, unknown> | null;
}

export interface FoundUser {
  username: string;
  user_id: string;
  display_name: string;
}

export interface HealthView {
  status: string;
  timestamp: string;
}

/** Answers every heartbeat, also one without a `request_id`. */
export interface HeartbeatAckFrame {
  type: "heartbeat_ack";
  request_id?: string | null;
  timestamp: string;
  payload: HeartbeatAckPayload;
}

export interface HeartbeatAckPayload {
  server_time: string;
}

/** Always answered; its `request_id` is optional, and echoed. */
export interface HeartbeatFrame {
  type: "heartbeat";
  timestamp?: string | null;
  request_id?: string | null;
  payload: EmptyPayload;
}

export interface HistoryPage {
  data: MessageView[];
  pagination: Pagination;
  as_of: number;
}

export interface LastMessageView {
  message_id: string;
  sequence: number;
  sender_id: string;
  content_preview: string;
  created_at: string;
  is_damaged?: boolean;
  is_deleted?: boolean;
}

export interface LeaveChat {
  do_not_add_again?: boolean;
}

export interface Login {
  username: string;
  password: string;
  device_id: string;
}

export interface LoginResult {
  user: AccountView;
  session: OpenedSessionView;
  tokens: TokensView;
  is_new_user: boolean;
}

/** The access token says which session ends; the refresh token need not be shown. */
export interface Logout {
  refresh_token?: string | null;
}

export interface LookupResult {
  users: FoundUser[];
  not_found: string[];
}

export interface LookupUsers {
  usernames: string[];
}

export interface MemberDeliveryView {
  user_id: string;
  display_name: string;
  last_acked_sequence: number;
  last_read_sequence: number;
  updated_at: string;
}

export interface MemberView {
  user_id: string;
  role: Role;
  display_name: string;
  joined_at: string;
}

export interface MembersPagination {
  has_more?: boolean;
  next_cursor?: string | null;
}

export type MembershipChange =
  | "added"
  | "removed"
  | "role_changed";

export interface MembershipChangedPayload {
  chat_id: string;
  chat_type: ChatType;
  name?: string | null;
  created_by: string;
  created_at: string;
  updated_at: string;
  membership_version: number;
  block_changes?: number;
  head: number;
  user_id: string;
  change_type: MembershipChange;
  role: Role;
  joined_sequence: number;
  changed_by: string;
  changed_at: string;
  member_count_after: number;
}

export interface MembershipChangedRecord {
  event_type: "MembershipChanged";
  event_id: string;
  event_version: number;
  event_time: string;
  partition_key: string;
  producer_id: string;
  trace_id: string;
  payload: MembershipChangedPayload;
}

/**
 * A message. To a client that has not offered `entries` also every other entry: of its `kind`,
 * without content.
 */
export interface MessageFrame {
  type: "message";
  timestamp: string;
  payload: MessagePayload;
}

export interface MessageNow {
  content?: string | null;
  edited_sequence?: number;
  deleted_sequence?: number;
  reactions?: Reaction[];
}

export interface MessagePayload {
  message_id: string;
  chat_id: string;
  sequence: number;
  prev_sequence: number;
  sender_id: string;
  client_message_id: string;
  content?: string;
  content_type: string;
  reply_to?: number | null;
  mentions?: string[];
  created_at: string;
  is_damaged?: boolean;
  is_deleted?: boolean;
  kind?: string | null;
  target?: number | null;
  reason?: string | null;
  emoji?: string | null;
  is_on?: boolean | null;
  count?: number | null;
}

export interface MessagePersistedPayload {
  chat_id: string;
  message_id: string;
  sequence: number;
  prev_sequence: number;
  sender_id: string;
  content?: string;
  content_type: string;
  reply_to?: number | null;
  mentions?: string[];
  client_message_id: string;
  created_at: string;
  is_damaged?: boolean;
  is_deleted?: boolean;
  deleted_by?: number | null;
  membership_version: number;
  origin_connection_id?: string | null;
}

export interface MessagePersistedRecord {
  event_type: "MessagePersisted";
  event_id: string;
  event_version: number;
  event_time: string;
  partition_key: string;
  producer_id: string;
  trace_id: string;
  payload: MessagePersistedPayload;
}

export interface MessageView {
  message_id: string;
  chat_id: string;
  sequence: number;
  prev_sequence: number;
  sender_id: string;
  sender: PersonView;
  client_message_id: string;
  content: string;
  content_type: string;
  reply_to?: number | null;
  mentions?: string[];
  created_at: string;
  is_damaged?: boolean;
  is_deleted?: boolean;
  kind?: string | null;
  target?: number | null;
  reason?: string | null;
  emoji?: string | null;
  is_on?: boolean | null;
  count?: number | null;
  now?: MessageNow | null;
}

export interface MuteChat {
  duration_hours?: number | null;
}

export interface MuteView {
  chat_id: string;
  muted_until: string | null;
}

export interface MyStanding {
  role: Role;
  joined_at: string;
  joined_sequence: number;
  muted_until: string | null;
  last_acked_sequence: number;
  last_read_sequence: number;
}

export interface OpenedSessionView {
  session_id: string;
  device_id: string | null;
  created_at: string;
  expires_at: string;
}

export interface Pagination {
  has_more: boolean;
  next_cursor: string | null;
  prev_cursor?: string | null;
}

export interface PersonView {
  user_id: string;
  display_name: string;
}

export interface PostMessage {
  /** A UUID. The same one again is the same request again. */
  client_message_id: string;
  /** 1 to 4096 bytes of UTF-8. */
  content: string;
  content_type?: "text/plain";
  /** The sequence of the message that this one answers. */
  reply_to?: number | null;
  /** Members who are meant; `@all`, from an admin of a group, means all. */
  mentions?: string[];
  seen_sequence?: number | null;
}

export interface ReactFrame {
  type: "react";
  timestamp?: string | null;
  request_id: string;
  payload: ReactPayload;
}

export interface ReactPayload {
  client_message_id: string;
  chat_id: string;
  target: number;
  is_first?: boolean;
  emoji: string;
  is_on?: boolean;
}

export interface ReactToMessage {
  /** A UUID. The same one again is the same request again. */
  client_message_id: string;
  /** 1 to 32 bytes of UTF-8. */
  emoji: string;
  /** False takes the reaction back. */
  is_on?: boolean;
}

export interface Reaction {
  emoji: string;
  count: number;
  sequence: number;
  is_own?: boolean;
  own_sequence?: number;
  users?: string[];
}

/** The user has seen everything up to here, which is also an ack of it. */
export interface ReadFrame {
  type: "read";
  timestamp?: string | null;
  payload: ReadPayload;
}

export interface ReadPayload {
  chat_id: string;
  last_read_sequence: number;
}

export interface Refresh {
  refresh_token: string;
  device_id?: string | null;
}

export interface RefreshResult {
  tokens: TokensView;
}

export interface RefusedGroup {
  chat_id: string;
}

export interface Register {
  username: string;
  password: string;
  device_id: string;
  display_name?: string | null;
  invite?: string | null;
}

export interface RenameChat {
  name: string;
}

/** Something may have been missed: send a `digest_request` after the delay. */
export interface ResyncFrame {
  type: "resync";
  timestamp: string;
  payload: ResyncPayload;
}

export interface ResyncPayload {
  reason: string;
  delay_ms: number;
}

export interface RevokedCount {
  revoked_count: number;
}

export type Role =
  | "admin"
  | "member"
  | "owner";

/** The message is on stable storage. Every retry gets the same numbers. */
export interface SendMessageAckFrame {
  type: "send_message_ack";
  request_id: string;
  timestamp: string;
  payload: SendMessageAckPayload;
}

export interface SendMessageAckPayload {
  client_message_id: string;
  message_id: string;
  chat_id: string;
  sequence: number;
  prev_sequence: number;
  created_at: string;
  deduplicated: boolean;
  count?: number | null;
}

export interface SendMessageFrame {
  type: "send_message";
  timestamp?: string | null;
  request_id: string;
  payload: SendMessagePayload;
}

export interface SendMessagePayload {
  client_message_id: string;
  chat_id: string;
  content: string;
  content_type?: string;
  reply_to?: number | null;
  mentions?: string[];
  seen_sequence?: number | null;
  is_first?: boolean;
}

export interface ServerView {
  version: string;
  api_version: string;
  capabilities: Capabilities;
  registration: string;
  is_without_accounts?: boolean;
  documentation_url: string;
}

export interface SessionView {
  session_id: string;
  device_id: string | null;
  kind: string;
  label: string | null;
  address: string | null;
  client: string | null;
  created_at: string;
  last_active_at: string;
  expires_at: string;
  is_current: boolean;
}

/** Positions as the recipient sees them: state, not history; clients merge by maximum. */
export interface StatusUpdateFrame {
  type: "status_update";
  timestamp: string;
  payload: StatusUpdatePayload;
}

export interface StatusUpdatePayload {
  chat_id: string;
  others_delivered: number;
  others_read: number;
  own_delivered?: number | null;
  own_read?: number | null;
  unread?: number | null;
  mentions_unread?: number | null;
}

/** An entry of a page; the chat is the page's. */
export interface SyncItem {
  message_id: string;
  sequence: number;
  prev_sequence: number;
  sender_id: string;
  client_message_id: string;
  content?: string;
  content_type: string;
  reply_to?: number | null;
  mentions?: string[];
  created_at: string;
  is_damaged?: boolean;
  is_deleted?: boolean;
  kind?: string | null;
  target?: number | null;
  reason?: string | null;
  emoji?: string | null;
  is_on?: boolean | null;
  count?: number | null;
}

export interface SyncRequestFrame {
  type: "sync_request";
  timestamp?: string | null;
  request_id: string;
  payload: SyncRequestPayload;
}

export interface SyncRequestPayload {
  chat_id: string;
  last_acked_sequence: number;
  limit?: number;
}

export interface SyncResponseFrame {
  type: "sync_response";
  request_id: string;
  timestamp: string;
  payload: SyncResponsePayload;
}

export interface SyncResponsePayload {
  chat_id: string;
  messages: SyncItem[];
  synced_through: number;
  has_more: boolean;
  next_sequence?: number | null;
}

export interface TokensView {
  access_token: string;
  refresh_token: string;
  token_type?: string;
  expires_in: number;
}

export interface TransferChat {
  user_id: string;
}

export interface TypingIndicatorFrame {
  type: "typing_indicator";
  timestamp: string;
  payload: TypingIndicatorPayload;
}

export interface TypingIndicatorPayload {
  chat_id: string;
  user_id: string;
  is_typing: boolean;
}

export interface TypingPayload {
  chat_id: string;
}

export interface TypingStartFrame {
  type: "typing_start";
  timestamp?: string | null;
  payload: TypingPayload;
}

export interface TypingStopFrame {
  type: "typing_stop";
  timestamp?: string | null;
  payload: TypingPayload;
}

export interface UpdateMe {
  display_name: string;
}

export interface UserView {
  user_id: string;
  display_name: string;
  created_at: string;
  is_deleted?: boolean;
}

export interface WatermarkView {
  chat_id: string;
  user_id: string;
  last_acked_sequence: number;
  last_read_sequence: number;
  updated_at: string;
}

/** A success of REST. */
export interface Envelope<Item> {
  data: Item;
}

/** A page of a list of REST. */
export interface Page<Item> {
  data: Item[];
  pagination: Pagination;
}

export type ClientFrame =
  | SendMessageFrame
  | EditMessageFrame
  | DeleteMessageFrame
  | ReactFrame
  | SyncRequestFrame
  | DigestRequestFrame
  | HeartbeatFrame
  | AckFrame
  | ReadFrame
  | TypingStartFrame
  | TypingStopFrame;

export type ServerFrame =
  | SendMessageAckFrame
  | SyncResponseFrame
  | HeartbeatAckFrame
  | ErrorFrame
  | ChatDigestFrame
  | ConnectionEstablishedFrame
  | MessageFrame
  | EntryFrame
  | ConnectionClosingFrame
  | TypingIndicatorFrame
  | StatusUpdateFrame
  | ChatUpdateFrame
  | ResyncFrame;

export type EventRecord =
  | MessagePersistedRecord
  | EntryPersistedRecord
  | ChatCreatedRecord
  | ChatUpdatedRecord
  | MembershipChangedRecord
  | ChatClosedRecord;

/** What an error may say; a newer server has more. */
export type ErrorCode =
  | "INVALID_MESSAGE"
  | "INVALID_ENCODING"
  | "INVALID_CONTENT"
  | "INVALID_CONTENT_TYPE"
  | "MESSAGE_TOO_LARGE"
  | "IDEMPOTENCY_KEY_REUSED"
  | "CURSOR_AHEAD"
  | "INVALID_SEQUENCE"
  | "TARGET_NOT_FOUND"
  | "MESSAGE_DELETED"
  | "EDIT_CONFLICT"
  | "EDIT_TOO_LATE"
  | "TOO_MANY_EDITS"
  | "TOO_MANY_REACTIONS"
  | "INVALID_MENTION"
  | "UNAUTHORIZED"
  | "FORBIDDEN"
  | "NOT_A_MEMBER"
  | "DEVICE_MISMATCH"
  | "INVALID_CREDENTIALS"
  | "INVALID_REFRESH_TOKEN"
  | "BAD_REQUEST"
  | "METHOD_NOT_ALLOWED"
  | "VALIDATION_ERROR"
  | "INVALID_OPERATION"
  | "CHAT_FULL"
  | "NOT_FOUND"
  | "USER_NOT_FOUND"
  | "CONFLICT"
  | "ALREADY_A_MEMBER"
  | "PAYLOAD_TOO_LARGE"
  | "UNPROCESSABLE_ENTITY"
  | "RATE_LIMITED"
  | "SLOW_CONSUMER"
  | "SERVER_BUSY"
  | "INTERNAL_ERROR"
  | "SERVICE_UNAVAILABLE";

/** What `connection_closing` may say. */
export type CloseReason =
  | "server_shutdown"
  | "idle_timeout"
  | "rate_limited"
  | "protocol_error"
  | "duplicate_connection"
  | "token_expired"
  | "slow_consumer"
  | "session_revoked";
